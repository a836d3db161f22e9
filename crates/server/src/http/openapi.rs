//! The OpenAPI document. The handlers describe themselves; what they exchange is described here, because the
//! protocol crate, which defines it, knows nothing of HTTP. A test holds the two together.

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

pub mod schema;

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

    #[test]
    fn the_document_describes_what_is_sent() {
        let document = serde_json::to_value(document()).unwrap();
        let user = wire::UserId::new("bob").unwrap();
        let conversation_id = wire::ConversationId::new("alice~bob").unwrap();
        let client_msg_id = wire::ClientMsgId::new("m1").unwrap();
        let message_id = wire::MessageId(1);
        let meta = Some(wire::Json::from_text("{}").unwrap());
        let send = json!({"client_msg_id": "m1", "to": "bob", "conversation_id": "alice~bob", "body": "", "attachment": {},
            "meta": {}, "seen_seq": 1});
        let send: wire::Send = serde_json::from_value(send).unwrap();
        let sent = wire::Sent {
            reference: None,
            client_msg_id: client_msg_id.clone(),
            conversation_id: conversation_id.clone(),
            seq: 1,
            message_id,
            ts: 1,
            duplicate: false,
        };
        let message = wire::MessageFrame {
            conversation_id: conversation_id.clone(),
            seq: 1,
            message_id,
            client_msg_id,
            sender: user.clone(),
            receiver: user.clone(),
            body: String::new(),
            ts: 1,
            attachment: meta.clone(),
            meta,
        };
        let card = wire::UserCard { user_id: user.clone(), name: None, avatar_url: None };
        let boundaries = wire::Boundaries::default();
        let entry = wire::InboxEntry {
            conversation_id: conversation_id.clone(),
            peer: card.clone(),
            last_message_preview: String::new(),
            last_message_ts: 1,
            last_seq: 1,
            last_sender: user.clone(),
            unread_count: 0,
            peer_status: boundaries.clone(),
        };
        let status = wire::StatusAnswer {
            reference: None,
            conversation_id: conversation_id.clone(),
            last_seq: 1,
            unread_count: 0,
            own: boundaries.clone(),
            peer: boundaries.clone(),
        };
        let history = wire::HistoryPage {
            reference: None,
            conversation_id,
            messages: vec![],
            from_seq: 1,
            to_seq: 1,
            next: None,
        };
        let inbox = wire::InboxPage { reference: None, conversations: vec![], next: None };
        let store = bluetick_store::Health::default();
        let readiness = ops::ReadinessReport { ready: true, reason: None, store, push: vec![] };
        let route = bluetick_chat::RouteHealth {
            route: "apns".into(),
            paused_ms: 0,
            misconfigured: None,
            failing: None,
        };
        let apns = json!({"provider": "apns", "token": "ab", "topic": "t", "sandbox": true});
        let apns: wire::PushRegistration = serde_json::from_value(apns).unwrap();
        let keys = wire::PushKeys { p256dh: String::new(), auth: String::new() };
        let subscription = wire::PushSubscription { endpoint: String::new(), keys: keys.clone() };
        let target = wire::PushTarget::Webpush { subscription: subscription.clone() };
        let webpush = wire::PushRegistration { target, content: wire::PushContent::None };
        let device = wire::PushDeviceCard {
            device: wire::DeviceId::new("phone").unwrap(),
            provider: wire::PushProvider::Apns,
            content: wire::PushContent::None,
            registered_at: 1,
        };
        let offer =
            push::PushOffer { providers: vec![], vapid_public_key: None, content: wire::PushContent::None };
        let mute =
            wire::Mute { conversation_id: wire::ConversationId::new("alice~bob").unwrap(), until: Some(1) };
        let s3_ref = wire::S3Ref::mint(1, [0; 10]);
        let attachment = wire::Attachment {
            s3_ref: s3_ref.clone(),
            name: String::new(),
            mime: String::new(),
            bytes: 1,
            sha256: String::new(),
            blurhash: Some(String::new()),
            thumbnail: Some(s3_ref.clone()),
            voice: true,
        };
        let cut = wire::UploadParts { bytes: 1, sha256: vec![] };
        let request = wire::UploadRequest {
            name: String::new(),
            mime: String::new(),
            bytes: 1,
            sha256: String::new(),
            parts: Some(cut.clone()),
        };
        let headers = [("a".to_owned(), "b".to_owned())].into();
        let signed = wire::SignedRequest { method: String::new(), url: String::new(), headers };
        let parts = vec![signed.clone()];
        let upload = wire::Upload { s3_ref, upload: Some(signed.clone()), parts, expires_at: 1 };
        let download = wire::Download {
            url: String::new(),
            expires_at: 1,
            name: String::new(),
            mime: String::new(),
            bytes: 1,
            sha256: String::new(),
        };
        for (name, sent) in [
            ("Send", sent_by(send)),
            ("Sent", sent_by(sent)),
            ("Message", sent_by(message)),
            ("UserCard", sent_by(card)),
            ("Boundaries", sent_by(boundaries)),
            ("InboxEntry", sent_by(entry)),
            ("StatusAnswer", sent_by(status)),
            ("HistoryPage", sent_by(history)),
            ("InboxPage", sent_by(inbox)),
            ("Profile", sent_by(wire::Profile::default())),
            ("Blocks", sent_by(api::Blocks { blocks: vec![], next: None })),
            ("PushOffer", sent_by(offer)),
            ("PushRegistration", sent_by(apns).union(&sent_by(webpush)).cloned().collect()),
            ("PushSubscription", sent_by(subscription)),
            ("PushKeys", sent_by(keys)),
            ("PushDeviceCard", sent_by(device)),
            ("PushDevices", sent_by(push::PushDevices { devices: vec![] })),
            ("Mute", sent_by(mute)),
            ("Mutes", sent_by(push::Mutes { mutes: vec![], next: None })),
            ("RouteHealth", sent_by(route)),
            ("Attachment", sent_by(attachment)),
            ("UploadRequest", sent_by(request)),
            ("UploadParts", sent_by(cut)),
            ("Upload", sent_by(upload)),
            ("SignedRequest", sent_by(signed)),
            ("UploadedParts", sent_by(wire::UploadedParts { etags: vec![], sha256: vec![] })),
            ("Download", sent_by(download)),
            ("Readiness", sent_by(readiness)),
            ("StoreHealth", sent_by(bluetick_store::Health::default())),
        ] {
            assert_eq!(described(&document, name), sent, "{name}");
        }
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
