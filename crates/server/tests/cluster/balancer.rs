//! nginx in front of the gateways, as an operator would put it there, with times that suit a test.

use std::{
    fs,
    path::Path,
    process::{Child, Command, Stdio},
};

pub struct Balancer {
    child: Child,
}

impl Balancer {
    /// Starts it with its files in a directory of its own. `silence_secs`: after which a connection is given up.
    pub fn start(dir: &Path, address: &str, gateways: &[String], silence_secs: u64) -> Balancer {
        fs::create_dir_all(dir).unwrap();
        let servers: String =
            gateways.iter().map(|g| format!("server {g} max_fails=1 fail_timeout=1s;\n")).collect();
        let config = format!(
            r#"
            # One process, which its parent can stop by its id.
            daemon off;
            master_process off;
            pid nginx.pid;
            error_log error.log;
            events {{ worker_connections 9000; }}
            http {{
                access_log off;
                client_body_temp_path body;
                proxy_temp_path proxy;
                fastcgi_temp_path fastcgi;
                uwsgi_temp_path uwsgi;
                scgi_temp_path scgi;
                map $http_upgrade $connection_upgrade {{ default upgrade; "" ""; }}
                upstream gateways {{ {servers} keepalive 16; }}
                server {{
                    listen {address};
                    location / {{
                        proxy_pass http://gateways;
                        proxy_http_version 1.1;
                        proxy_set_header Host $http_host;
                        proxy_set_header Upgrade $http_upgrade;
                        proxy_set_header Connection $connection_upgrade;
                        proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
                        proxy_connect_timeout 1s;
                        proxy_read_timeout {silence_secs}s;
                        proxy_send_timeout {silence_secs}s;
                        proxy_next_upstream error timeout http_503;
                        proxy_buffering off;
                    }}
                }}
            }}
            "#
        );
        let file = dir.join("nginx.conf");
        fs::write(&file, config).unwrap();
        let mut command = Command::new("nginx");
        command.arg("-p").arg(dir).arg("-c").arg(&file).args(["-e", "error.log"]);
        let child = command.stdin(Stdio::null()).spawn().expect("nginx is installed");
        Balancer { child }
    }
}

impl Drop for Balancer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
