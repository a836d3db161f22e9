//! Whether the settings of many processes fit together.

use super::{Config, ConfigError, wrong};
use crate::config::{Backend, RedisMode, is_loopback_name};

/// A secret that guards the way into a cluster, as long as one that signs tokens.
const SECRET_MIN_BYTES: usize = 32;

impl Config {
    pub(super) fn check_cluster(&self) -> Result<(), ConfigError> {
        self.check_roles()?;
        self.check_listener()?;
        self.check_guards()?;
        self.check_backends()?;
        self.check_build()
    }

    fn check_roles(&self) -> Result<(), ConfigError> {
        let roles = &self.server.roles;
        if roles.is_empty() || roles.len() > 2 || (roles.len() == 2 && roles[0] == roles[1]) {
            return wrong(
                "server.roles: write [\"gateway\"], [\"app\"] or [\"gateway\", \"app\"], each at most once",
            );
        }
        if roles.len() == 1 && self.cluster.listen.is_none() {
            return wrong(
                "server.roles names one role, and the other must be reached somewhere: set cluster.listen (and \
                 cluster.secret_file), or give this process both roles",
            );
        }
        Ok(())
    }

    fn check_listener(&self) -> Result<(), ConfigError> {
        let cluster = &self.cluster;
        if let Some(address) = cluster.advertise.iter().chain(&cluster.app_servers).find(|a| !is_reachable(a))
        {
            return wrong(format!(
                "cluster: {address:?} is not a host with a port that others can reach; write 10.0.0.7:7070 or \
                 chat-1.internal:7070"
            ));
        }
        let Some(listen) = cluster.listen else { return Ok(()) };
        if cluster.advertise.is_none() && listen.ip().is_unspecified() {
            return wrong(format!(
                "cluster.listen is {listen}, which is no address that others can be told; set cluster.advertise to \
                 this machine's name or address, with the port"
            ));
        }
        Ok(())
    }

    /// A caller of the cluster listener can read and send in any user's name, so it must be
    /// authenticated.
    fn check_guards(&self) -> Result<(), ConfigError> {
        let cluster = &self.cluster;
        if cluster.secret.is_some() && cluster.secret_file.is_some() {
            return wrong("cluster: set only one of secret and secret_file");
        }
        if cluster.secret.as_ref().is_some_and(|secret| secret.expose().len() < SECRET_MIN_BYTES) {
            return wrong(format!("cluster.secret must be at least {SECRET_MIN_BYTES} bytes long"));
        }
        let files = [&cluster.ca_file, &cluster.cert_file, &cluster.key_file];
        if cluster.has_certificates() && files.iter().any(|file| file.is_none()) {
            return wrong("cluster: set all of ca_file, cert_file and key_file, or none");
        }
        if !cluster.has_secret()
            && !cluster.has_certificates()
            && let Some(what) = self.beyond_this_machine()
        {
            return wrong(format!(
                "{what}, and nothing guards the cluster: neither side would prove who it is; set \
                 cluster.secret_file, or cluster.ca_file, cert_file and key_file, or keep all of it on 127.0.0.1"
            ));
        }
        self.check_plaintext()
    }

    /// The setting by which a cluster may reach beyond this machine, if there is one.
    fn beyond_this_machine(&self) -> Option<String> {
        let cluster = &self.cluster;
        let listen = cluster.listen?;
        if !listen.ip().to_canonical().is_loopback() {
            return Some(format!("cluster.listen is {listen}, which other machines can reach"));
        }
        // A proxy or a tunnel on this machine may lead others to a loopback address.
        if let Some(address) = cluster.advertise.as_ref().filter(|address| is_elsewhere(address)) {
            return Some(format!("cluster.advertise is {address}, which other machines can reach"));
        }
        if let Some(address) = cluster.app_servers.iter().find(|address| is_elsewhere(address)) {
            return Some(format!("cluster.app_servers names {address}, which is another machine"));
        }
        cluster.allow_plaintext.then(|| "cluster.allow_plaintext is true".to_owned())
    }

    /// A secret proves who is who; only certificates encrypt.
    fn check_plaintext(&self) -> Result<(), ConfigError> {
        let cluster = &self.cluster;
        let Some(listen) = cluster.listen else { return Ok(()) };
        if cluster.allow_plaintext || cluster.has_certificates() {
            return Ok(());
        }
        let what = match cluster.app_servers.iter().find(|address| is_elsewhere(address)) {
            _ if !listen.ip().to_canonical().is_loopback() => format!("cluster.listen is {listen}"),
            Some(address) => format!("cluster.app_servers names {address}"),
            None => return Ok(()),
        };
        wrong(format!(
            "{what}, and messages would go between machines in clear text; set cluster.ca_file, cert_file and \
             key_file, or cluster.allow_plaintext = true in a network that nobody else is in"
        ))
    }

    fn check_backends(&self) -> Result<(), ConfigError> {
        let shared = self.store.backend == Backend::Dynamodb;
        if self.cluster.listen.is_some() && self.is_app() && !shared {
            return wrong(
                "cluster.listen is set, and the embedded store belongs to one process; set store.backend = \
                 \"dynamodb\", or take [cluster] out",
            );
        }
        let redis = &self.redis;
        if (shared || self.cluster.listen.is_some()) && redis.urls.is_empty() {
            return wrong(
                "redis.urls is empty: a cluster keeps its sessions there; write [\"redis://HOST:6379\"]",
            );
        }
        if let Some(url) = redis.urls.iter().find(|url| !is_redis(url)) {
            let shown = url.split('@').next_back().unwrap_or_default();
            return wrong(format!("redis.urls: {shown:?} must begin with redis:// or rediss://"));
        }
        match redis.mode {
            RedisMode::Single if redis.urls.len() > 1 => {
                wrong("redis.urls names several servers: set redis.mode to \"sentinel\" or \"cluster\"")
            }
            RedisMode::Sentinel if redis.master.is_none() => {
                wrong("redis.mode is \"sentinel\": set redis.master to the name that the sentinels watch")
            }
            _ => Ok(()),
        }
    }

    fn check_build(&self) -> Result<(), ConfigError> {
        if cfg!(feature = "cluster") || self.is_one_process() {
            return Ok(());
        }
        let what = match self.store.backend {
            Backend::Dynamodb => "store.backend = \"dynamodb\"",
            Backend::Embedded => "cluster.listen",
        };
        wrong(format!(
            "{what} needs a build with the backends for many machines, and this one is without; build it with \
             `cargo build --release --features cluster`"
        ))
    }
}

/// Whether an address leads to another machine.
fn is_elsewhere(address: &str) -> bool {
    !is_loopback_name(address.rsplit_once(':').map_or("", |(host, _)| host))
}

fn is_redis(url: &str) -> bool {
    url.starts_with("redis://") || url.starts_with("rediss://")
}

/// A host and a port that is not 0.
fn is_reachable(address: &str) -> bool {
    let Some((host, port)) = address.rsplit_once(':') else { return false };
    let plain = |host: &str| host.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._".contains(&b));
    let bracketed = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let host_is_one = match bracketed {
        Some(ip) => ip.parse::<std::net::Ipv6Addr>().is_ok_and(|ip| !ip.is_unspecified()),
        None => !host.is_empty() && plain(host) && host != "0.0.0.0",
    };
    host_is_one && port.parse::<u16>().is_ok_and(|port| port > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_for_others_has_a_host_and_a_port() {
        for good in ["10.0.0.7:7070", "chat-1.internal:7070", "[::1]:1", "localhost:65535"] {
            assert!(is_reachable(good), "{good}");
        }
        for bad in
            ["10.0.0.7", ":7070", "0.0.0.0:7070", "[::]:1", "a:0", "a:65536", "a b:1", "http://a:1", ""]
        {
            assert!(!is_reachable(bad), "{bad}");
        }
    }
}
