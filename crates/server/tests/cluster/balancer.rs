//! nginx in front of the gateways: `deploy/nginx.conf`, with times and limits that suit a test, without TLS, and open to
//! operators, because the tests ask as these do.

use std::path::Path;

use crate::reverse_proxy::{ReverseProxy, nginx_file, start_nginx};

pub struct Balancer {
    _nginx: ReverseProxy,
}

impl Balancer {
    /// Starts it with its files in a directory of its own. `silence_secs`: after which a connection is given up.
    pub fn start(dir: &Path, address: &str, gateways: &[String], silence_secs: u64) -> Balancer {
        let mut file = nginx_file(dir, gateways);
        let silence = |of: &str| (format!("{of} 90s;"), format!("{of} {silence_secs}s;"));
        let (read, send) = (silence("proxy_read_timeout"), silence("proxy_send_timeout"));
        file.replace("listen 443 ssl default_server;", &format!("listen {address};"))
            .without("ssl_")
            .replace("location / { return 404; }", "location / { proxy_pass http://gateways; }")
            // All people of a test have one address.
            .replace("rate=20r/s", "rate=100000r/s")
            .replace("limit_conn sessions 1000;", "limit_conn sessions 9000;")
            .replace("burst=200", "burst=9000")
            .replace("max_fails=2 fail_timeout=5s", "max_fails=1 fail_timeout=1s")
            .replace("proxy_connect_timeout 3s;", "proxy_connect_timeout 1s;")
            // A gateway that is going down is passed over by everybody, so that restarts can follow each other closely.
            .replace("proxy_next_upstream error timeout;", "proxy_next_upstream error timeout http_503;")
            .replace(&read.0, &read.1)
            .replace(&send.0, &send.1);
        Balancer { _nginx: start_nginx(dir, address, &file) }
    }
}
