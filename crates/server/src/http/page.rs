//! Pages. The one about the API is made from the OpenAPI document, so it cannot say anything else.

use std::{fmt::Write as _, sync::LazyLock};

use axum::{
    http::{HeaderValue, header},
    response::{Html, IntoResponse as _, Response},
};
use rand::{TryRng as _, rngs::SysRng};
use serde_json::Value;

use super::openapi::document;
use crate::auth::hex;

static DOCUMENT: LazyLock<String> = LazyLock::new(|| serde_json::to_string(&document()).unwrap_or_default());
static DOCS: LazyLock<String> = LazyLock::new(|| {
    let document = serde_json::to_value(document()).unwrap_or_default();
    STYLED.replace("{title}", "Bluetick API").replace("{body}", &render(&document))
});

const STYLED: &str = include_str!("docs.html");

/// `GET /v1/openapi.json`.
pub async fn openapi() -> Response {
    ([(header::CONTENT_TYPE, "application/json")], DOCUMENT.as_str()).into_response()
}

/// `GET /v1/docs`.
pub async fn docs() -> Response {
    with_policy(&DOCS)
}

/// A content security policy with a nonce: only the page's own `<script>` and `<style>` elements
/// run.
fn with_policy(html: &str) -> Response {
    let nonce = nonce();
    let policy = format!(
        "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; base-uri 'none'; \
         form-action 'none'; frame-ancestors 'none'"
    );
    let html = html
        .replace("<script>", &format!("<script nonce=\"{nonce}\">"))
        .replace("<style>", &format!("<style nonce=\"{nonce}\">"));
    let mut response = Html(html).into_response();
    if let Ok(policy) = HeaderValue::try_from(policy) {
        response.headers_mut().insert(header::CONTENT_SECURITY_POLICY, policy);
    }
    response
}

fn nonce() -> String {
    let mut random = [0u8; 16];
    // Without randomness the number would be known; an empty one lets nothing run.
    match SysRng.try_fill_bytes(&mut random) {
        Ok(()) => hex(&random),
        Err(_) => String::new(),
    }
}

const METHODS: [&str; 4] = ["get", "post", "put", "delete"];

fn render(document: &Value) -> String {
    let mut html = String::new();
    let info = &document["info"];
    let _ = write!(html, "<header><h1>{} API</h1>", text(&info["title"]));
    let _ = write!(
        html,
        "<p class=\"version\">version {}</p>{}",
        text(&info["version"]),
        prose(&info["description"])
    );
    html += "<p><a href=\"/v1/openapi.json\">openapi.json</a></p></header><main>";
    for tag in list(&document["tags"]) {
        let _ = write!(html, "<section><h2>{}</h2>{}", text(&tag["name"]), prose(&tag["description"]));
        for (path, item) in entries(&document["paths"]) {
            for method in METHODS {
                let operation = &item[method];
                if list(&operation["tags"]).any(|named| *named == tag["name"]) {
                    html += &operation_card(method, path, operation);
                }
            }
        }
        html += "</section>";
    }
    html += "<section><h2>schemas</h2>";
    for (name, schema) in entries(&document["components"]["schemas"]) {
        let _ = write!(
            html,
            "<article id=\"{0}\"><h3>{0}</h3>{1}{2}</article>",
            escape(name),
            prose(&schema["description"]),
            properties(schema)
        );
    }
    html + "</section></main>"
}

fn operation_card(method: &str, path: &str, operation: &Value) -> String {
    let id = text(&operation["operationId"]);
    let mut html = format!(
        "<article id=\"{id}\"><h3><span class=\"method {method}\">{method}</span> <code>{}</code></h3>\
         <p class=\"summary\">{}</p>{}",
        escape(path),
        text(&operation["summary"]),
        prose(&operation["description"])
    );
    let parameters: Vec<&Value> = list(&operation["parameters"]).collect();
    if !parameters.is_empty() {
        html += "<table><thead><tr><th>parameter</th><th>in</th><th>type</th><th></th></tr></thead><tbody>";
        for parameter in parameters {
            let _ = write!(
                html,
                "<tr><td><code>{}</code>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
                text(&parameter["name"]),
                mark(parameter["required"] == true),
                text(&parameter["in"]),
                kind(&parameter["schema"]),
                inline(&parameter["description"])
            );
        }
        html += "</tbody></table>";
    }
    let body = &operation["requestBody"]["content"]["application/json"]["schema"];
    if !body.is_null() {
        let _ = write!(html, "<p>Body: {}</p>", kind(body));
    }
    html += "<table><thead><tr><th>status</th><th>answer</th><th></th></tr></thead><tbody>";
    for (status, response) in entries(&operation["responses"]) {
        let schema = entries(&response["content"]).next().map(|(_, content)| kind(&content["schema"]));
        let _ = write!(
            html,
            "<tr><td>{}</td><td>{}</td><td>{}</td></tr>",
            escape(status),
            schema.unwrap_or_default(),
            inline(&response["description"])
        );
    }
    html + "</tbody></table></article>"
}

fn properties(schema: &Value) -> String {
    let mut html = String::from("<table><tbody>");
    for (name, property) in entries(&schema["properties"]) {
        let required = list(&schema["required"]).any(|required| required == name);
        let _ = write!(
            html,
            "<tr><td><code>{}</code>{}</td><td>{}</td><td>{}</td></tr>",
            escape(name),
            mark(required),
            kind(property),
            inline(&property["description"])
        );
        if property["properties"].is_object() {
            let _ = write!(html, "<tr><td></td><td colspan=\"2\">{}</td></tr>", properties(property));
        }
    }
    html + "</tbody></table>"
}

/// A schema in a word: a link to a named one, a type, a list of either.
fn kind(schema: &Value) -> String {
    if let Some(name) = schema["$ref"].as_str().and_then(|reference| reference.rsplit('/').next()) {
        return format!("<a href=\"#{0}\">{0}</a>", escape(name));
    }
    if let Some(any) = schema["oneOf"].as_array() {
        return any.iter().map(kind).collect::<Vec<_>>().join(" or ");
    }
    if schema["enum"].is_array() {
        let values: Vec<_> =
            list(&schema["enum"]).map(|value| format!("<code>{}</code>", text(value))).collect();
        return format!("one of {}", values.join(", "));
    }
    match &schema["type"] {
        Value::Array(types) => types.iter().map(text).collect::<Vec<_>>().join(" or "),
        Value::String(name) if name == "array" => format!("list of {}", kind(&schema["items"])),
        name => text(name),
    }
}

fn mark(required: bool) -> &'static str {
    if required { " <span class=\"required\">required</span>" } else { "" }
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn entries(value: &Value) -> impl Iterator<Item = (&str, &Value)> {
    value.as_object().into_iter().flatten().map(|(name, value)| (name.as_str(), value))
}

fn text(value: &Value) -> String {
    escape(value.as_str().unwrap_or_default())
}

fn prose(value: &Value) -> String {
    let paragraphs = value.as_str().unwrap_or_default().split("\n\n").filter(|text| !text.trim().is_empty());
    paragraphs.map(|text| format!("<p>{}</p>", with_code(text))).collect()
}

fn inline(value: &Value) -> String {
    with_code(value.as_str().unwrap_or_default())
}

/// What stands between backticks is code.
fn with_code(text: &str) -> String {
    let parts = text.split('`').enumerate();
    parts
        .map(|(n, part)| if n % 2 == 1 { format!("<code>{}</code>", escape(part)) } else { escape(part) })
        .collect()
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
        .replace('\'', "&#39;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_shows_the_whole_document() {
        let document = serde_json::to_value(document()).unwrap();
        let page = &*DOCS;
        for (path, item) in entries(&document["paths"]) {
            assert!(page.contains(&format!("<code>{}</code>", escape(path))), "{path}");
            for (_, operation) in entries(item) {
                assert!(page.contains(&text(&operation["summary"])), "{path}");
            }
        }
        for (name, _) in entries(&document["components"]["schemas"]) {
            assert!(page.contains(&format!("id=\"{name}\"")), "{name}");
        }
        assert!(page.contains("rate_limited"), "the error codes are listed");
        for outside in ["src=", "http://", "https://", "@import", "url("] {
            assert!(!page.contains(outside), "{outside}: nothing comes from elsewhere");
        }
    }

    #[test]
    fn text_cannot_become_markup() {
        assert_eq!(with_code("a `<b>` & \"c\""), "a <code>&lt;b&gt;</code> &amp; &quot;c&quot;");
    }
}
