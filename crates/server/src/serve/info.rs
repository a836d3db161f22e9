//! What the server prints when it is ready.

use std::{fmt, path::PathBuf, sync::Arc};

use serde_json::{Map, Value, json};

use crate::config::{Backend, Config};

/// The addresses and paths of a server that accepts connections.
#[derive(Debug, Clone)]
pub struct ServeInfo {
    pub url: String,
    pub data_dir: PathBuf,
    /// Whether the chat page is served.
    pub chat: bool,
    /// Whether the operator's page is served.
    pub admin: bool,
    /// The key of the demo, if it is on. Only the printed addresses may contain it.
    pub demo_key: Option<Arc<str>>,
    /// Whether tokens are signed with the secret in the data directory.
    pub own_secret: bool,
    /// Where the other processes of the cluster reach this one.
    pub cluster: Option<String>,
    /// Whether clients connect here.
    pub gateway: bool,
    /// Whether the data directory holds the store, not only keys.
    pub has_data: bool,
    /// The backend with the data; `None` for a gateway without a store.
    pub store: Option<&'static str>,
}

impl ServeInfo {
    pub(super) fn new(
        config: &Config,
        url: String,
        cluster: Option<String>,
        demo_key: Option<Arc<str>>,
    ) -> ServeInfo {
        ServeInfo {
            url,
            data_dir: config.server.data_dir.clone(),
            chat: config.is_gateway() && config.chat_page_is_on(),
            admin: config.pages.admin,
            demo_key,
            own_secret: config.is_gateway() && !config.auth.is_configured(),
            cluster,
            gateway: config.is_gateway(),
            has_data: config.is_app() && config.store.backend == Backend::Embedded,
            store: config.is_app().then_some(match config.store.backend {
                Backend::Embedded => "embedded",
                Backend::Dynamodb => "dynamodb",
            }),
        }
    }

    /// The same as fields of a JSON log line. More people read a log than a terminal, so the demo
    /// key is left out; programs find it in the data directory.
    pub fn fields(&self) -> Map<String, Value> {
        let page = |is_there: bool, path: &str| is_there.then(|| format!("{}{path}", self.url));
        let fields = json!({
            "version": env!("CARGO_PKG_VERSION"),
            "address": self.url,
            "store": self.store.unwrap_or("none"),
            "data_dir": self.data_dir.display().to_string(),
            "chat": page(self.chat, "/"),
            "tour": page(self.demo_key.is_some(), "/tour"),
            "admin": page(self.admin, "/admin"),
            "api": page(self.gateway, "/v1/docs"),
            "cluster": self.cluster,
            "demo": self.demo_key.is_some(),
        });
        match fields {
            Value::Object(fields) => fields.into_iter().filter(|(_, value)| !value.is_null()).collect(),
            _ => Map::new(),
        }
    }
}

impl fmt::Display for ServeInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ServeInfo { url, data_dir, .. } = self;
        writeln!(f, "bluetick is listening on {url}")?;
        let fragment = self.demo_key.as_ref().map(|key| format!("#demo={key}")).unwrap_or_default();
        if self.chat {
            writeln!(f, "  chat in the browser   {url}/{fragment}")?;
        }
        if self.demo_key.is_some() {
            writeln!(f, "  what happens in it    {url}/tour{fragment}")?;
        }
        if self.admin {
            writeln!(f, "  for operators         {url}/admin")?;
        }
        if self.gateway {
            writeln!(f, "  the API               {url}/v1/docs")?;
        }
        if let Some(cluster) = &self.cluster {
            writeln!(f, "  the cluster finds it  {cluster}")?;
        }
        if self.own_secret {
            writeln!(f, "  a token for alice     bluetick token --user alice --data {}", data_dir.display())?;
        }
        match self.has_data {
            true => write!(f, "  data                  {}", data_dir.display()),
            false => write!(f, "  its keys              {}", data_dir.display()),
        }
    }
}
