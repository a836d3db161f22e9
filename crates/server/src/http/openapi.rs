//! The OpenAPI document. The handlers describe themselves, and the types that they exchange derive their schemas.

use bluetick_protocol::ErrorCode;
use utoipa::{
    Modify, OpenApi,
    openapi::{
        self, ContentBuilder, PathItem, Ref, RefOr, ResponseBuilder,
        path::Operation,
        schema::{ObjectBuilder, Schema, Type},
        security::{Http, HttpAuthScheme, SecurityRequirement, SecurityScheme},
    },
};

use super::{api, attachments, ops, push};

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Bluetick",
        description = "1:1 messaging with delivery guarantees. Everything here can also be done over the WebSocket \
                       at `/v1/ws`, which delivers messages as they come.\n\nRequests carry a token: \
                       `Authorization: Bearer …`, a JWT whose `sub` is the user id.",
        license(name = "MIT OR Apache-2.0", identifier = "MIT OR Apache-2.0"),
    ),
    paths(
        api::send, api::inbox, api::history, api::status, api::read, api::me, api::put_me, api::user, api::blocks,
        api::block, api::unblock, push::offer, push::devices, push::register, push::unregister, push::mute,
        push::unmute, push::mutes, attachments::announce, attachments::complete, attachments::download, web_socket, ops::healthz, ops::readyz, ops::metrics,
    ),
    tags(
        (name = "messages", description = "Sending"),
        (name = "conversations", description = "The inbox, history and ticks"),
        (name = "users", description = "Profiles and blocks"),
        (name = "attachments", description = "Files that messages refer to"),
        (name = "notifications", description = "What reaches a device that is not connected"),
        (name = "live", description = "Delivery as it happens"),
        (name = "operations", description = "For who runs the server"),
    ),
    modifiers(&Everywhere),
)]
struct Document;

/// Opens a WebSocket
///
/// JSON text frames, `"type"` names the frame; the first is `hello`, with the token in it.
#[utoipa::path(
    get, path = "/v1/ws", tag = "live", operation_id = "webSocket", security(()),
    responses((status = 101, description = "A WebSocket"), (status = 426, description = "Not a WebSocket handshake")),
)]
#[allow(dead_code)]
fn web_socket() {}

/// The document, complete.
pub fn document() -> openapi::OpenApi {
    Document::openapi()
}

/// What every operation has: the token, and the one shape of errors.
struct Everywhere;

impl Modify for Everywhere {
    fn modify(&self, document: &mut openapi::OpenApi) {
        document.info.version = env!("CARGO_PKG_VERSION").to_owned();
        let components = document.components.get_or_insert_default();
        let bearer =
            SecurityScheme::Http(Http::builder().scheme(HttpAuthScheme::Bearer).bearer_format("JWT").build());
        components.security_schemes.insert("bearer".into(), bearer.into());
        components.schemas.insert("Error".into(), error_schema());
        document.security = Some(vec![SecurityRequirement::new("bearer", Vec::<String>::new())]);
        for (path, item) in &mut document.paths.paths {
            let with_body = path.starts_with("/v1/");
            for operation in operations(item).into_iter().filter(|_| with_body) {
                add_errors(operation);
            }
        }
    }
}

fn operations(item: &mut PathItem) -> impl IntoIterator<Item = &mut Operation> {
    [&mut item.get, &mut item.put, &mut item.post, &mut item.delete].into_iter().flatten()
}

fn add_errors(operation: &mut Operation) {
    let live = operation.operation_id.as_deref() == Some("webSocket");
    let every: &[(&str, &str)] = match live {
        true => &[("403", "The page's origin is not allowed"), ("503", "The server is going down")],
        false => &[
            ("400", "The request is wrong; `code` and `message` say how"),
            (
                "401",
                "The token is missing, wrong (`unauthorized`), expired (`token_expired`) or revoked (`token_revoked`)",
            ),
            ("404", "There is no such thing, or it is not yours"),
            (
                "429",
                "Too much in a short time, or too many requests whose answers have not been read; `retry_after_ms` says when the next will pass",
            ),
            ("503", "The server cannot do this right now; `retry_after_ms` says when to try again"),
        ],
    };
    let with_body: &[(&str, &str)] = match operation.request_body {
        Some(_) => &[
            ("403", "You block this user"),
            ("413", "The body is too long"),
            ("415", "The body is not `application/json`"),
            ("507", "The server has no room for new messages"),
        ],
        None => &[],
    };
    for (status, description) in every.iter().chain(with_body) {
        let content = ContentBuilder::new().schema(Some(Ref::from_schema_name("Error"))).build();
        let response = ResponseBuilder::new().description(*description).content("application/json", content);
        operation
            .responses
            .responses
            .entry((*status).to_owned())
            .or_insert_with(|| RefOr::T(response.build()));
    }
}

fn error_schema() -> RefOr<Schema> {
    let codes = ObjectBuilder::new()
        .schema_type(Type::String)
        .enum_values(Some(ErrorCode::ALL.iter().map(|code| code.as_str())));
    let text =
        ObjectBuilder::new().schema_type(Type::String).description(Some("What is wrong and what to do"));
    let wait = ObjectBuilder::new()
        .schema_type(Type::Integer)
        .description(Some("When the same request may succeed, in milliseconds"));
    let error = ObjectBuilder::new()
        .property("code", codes)
        .required("code")
        .property("message", text)
        .required("message")
        .property("retry_after_ms", wait);
    let body = ObjectBuilder::new()
        .description(Some("Why a request was refused"))
        .property("error", error)
        .required("error");
    RefOr::T(Schema::Object(body.build()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use bluetick_protocol as wire;
    use serde_json::{Value, json};
    use std::collections::BTreeSet;

    fn described(document: &Value, name: &str) -> BTreeSet<String> {
        let properties = document["components"]["schemas"][name]["properties"].as_object();
        properties.unwrap_or_else(|| panic!("{name} is not described")).keys().cloned().collect()
    }

    fn sent_by(value: impl serde::Serialize) -> BTreeSet<String> {
        let value = serde_json::to_value(value).unwrap();
        value.as_object().unwrap().keys().filter(|key| *key != "ref").cloned().collect()
    }

    /// What a value of this type is written as, after it was read.
    fn rewritten<T: serde::de::DeserializeOwned + serde::Serialize>(value: Value) -> BTreeSet<String> {
        sent_by(serde_json::from_value::<T>(value).unwrap())
    }

    /// Schemas derive from the types. This covers those whose JSON is not one property for each field.
    #[test]
    fn the_document_describes_what_is_sent() {
        let document = serde_json::to_value(document()).unwrap();
        let place = json!({"conversation_id": "alice~bob", "seq": 1, "message_id": "1", "client_msg_id": "m1", "ts": 1});
        let with = |more: Value| {
            let mut value = place.clone();
            value.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            value
        };
        let apns =
            json!({"provider": "apns", "token": "ab", "topic": "t", "sandbox": true, "content": "none"});
        let keys = json!({"p256dh": "", "auth": ""});
        let webpush = json!({"provider": "webpush", "subscription": {"endpoint": "", "keys": keys}});
        let registration = rewritten::<wire::PushRegistration>(apns)
            .union(&rewritten::<wire::PushRegistration>(webpush))
            .cloned()
            .collect();
        let (store, push) = (bluetick_store::Health::default(), vec![]);
        for (name, sent) in [
            (
                "Send",
                rewritten::<wire::Send>(json!({"ref": 1, "client_msg_id": "m1", "to": "bob",
                    "conversation_id": "alice~bob", "body": "", "attachment": {}, "meta": {}, "seen_seq": 1})),
            ),
            ("Sent", rewritten::<wire::Sent>(with(json!({"ref": 1, "duplicate": false})))),
            (
                "Message",
                rewritten::<wire::MessageFrame>(with(
                    json!({"sender": "alice", "receiver": "bob", "body": "",
                    "attachment": {}, "meta": {}}),
                )),
            ),
            ("PushRegistration", registration),
            ("StoreHealth", sent_by(&store)),
            ("Readiness", sent_by(ops::ReadinessReport { ready: true, reason: None, store, push })),
        ] {
            assert_eq!(described(&document, name), sent, "{name}");
        }
        let sent = &document["components"]["schemas"]["Sent"]["properties"];
        assert_eq!(sent["message_id"]["$ref"], "#/components/schemas/MessageId");
        assert_eq!(document["components"]["schemas"]["MessageId"]["type"], "string");
    }

    #[test]
    fn every_reference_leads_somewhere() {
        let document = serde_json::to_value(document()).unwrap();
        let text = document.to_string();
        for reference in text.split("\"$ref\":\"#").skip(1) {
            let pointer = reference.split('"').next().unwrap();
            assert!(document.pointer(pointer).is_some(), "{pointer}");
        }
        assert_eq!(document["openapi"].as_str().map(|v| &v[..3]), Some("3.1"));
        assert!(document["components"]["schemas"]["Error"].is_object());
        assert_eq!(document["components"]["securitySchemes"]["bearer"]["scheme"], "bearer");
        for (path, item) in document["paths"].as_object().unwrap() {
            for (method, operation) in item.as_object().unwrap() {
                assert!(operation["summary"].is_string(), "{method} {path}");
                assert!(operation["operationId"].is_string(), "{method} {path}");
            }
        }
    }
}
