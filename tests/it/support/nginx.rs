//! nginx in front of replicas, as people put it there: each request goes to the next of them, and one that cannot be
//! reached is passed over.

use std::collections::HashSet;
use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use super::gateway::Gateway;
use super::postgres::Cluster;
use super::wait::eventually;

/// How long a start may take; generous, the machine may be busy.
const START_WAIT_MAX: Duration = Duration::from_secs(15);
/// As `/proc/net/tcp` says it.
const ESTABLISHED: &str = "01";
/// For streams that say nothing for long.
const PLAIN: &str = "proxy_buffering off; proxy_read_timeout 1h;";
const MISSING: &str = "nginx is missing: install the package nginx";

/// A running nginx; killed when dropped.
pub struct Nginx {
    /// `http://127.0.0.1:PORT`
    pub url: String,
    child: Child,
    _folder: tempfile::TempDir,
}

impl Nginx {
    /// In front of these replicas. A test that needs it fails where it is missing.
    pub async fn before(replicas: &[&Gateway]) -> Nginx {
        Nginx::configured(replicas, PLAIN).await
    }

    /// In front of these replicas, with these lines about passing requests on.
    pub async fn configured(replicas: &[&Gateway], lines: &str) -> Nginx {
        let folder = tempfile::tempdir().unwrap();
        let at = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
        let config = folder.path().join("nginx.conf");
        fs::write(&config, settings(&at, replicas, lines)).unwrap();
        let mut command = Command::new(program());
        command.arg("-p").arg(folder.path()).arg("-c").arg(&config).args(["-e", "stderr"]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().expect(MISSING);
        drop(fs::write(Cluster::of_this_run().note_of(child.id()), ""));
        let mut nginx = Nginx { url: format!("http://{at}"), child, _folder: folder };
        let asked = replicas[0].anonymous().at(&nginx.url);
        eventually("nginx to pass requests on", START_WAIT_MAX, || {
            let ended = nginx.child.try_wait().unwrap();
            assert!(ended.is_none(), "nginx ended ({ended:?})");
            let answer = asked.get("/livez");
            async { (answer.await.status == 200).then_some(()) }
        })
        .await;
        nginx
    }
}

impl Nginx {
    /// Requests that are under way to this replica: open streams, when nobody asks anything.
    pub fn open_at(&self, replica: &Gateway) -> usize {
        let own: HashSet<String> = fs::read_dir(format!("/proc/{}/fd", self.child.id()))
            .unwrap()
            .filter_map(|fd| fs::read_link(fd.ok()?.path()).ok())
            .filter_map(|to| Some(to.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned()))
            .collect();
        let port: u16 = replica.url.rsplit(':').next().unwrap().parse().unwrap();
        let remote = format!(":{port:04X}");
        let connections = fs::read_to_string("/proc/net/tcp").unwrap();
        connections
            .lines()
            .filter(|line| {
                let fields: Vec<&str> = line.split_whitespace().collect();
                fields[2].ends_with(&remote) && fields[3] == ESTABLISHED && own.contains(fields[9])
            })
            .count()
    }
}

/// One process, so that killing it ends it and the turns are taken in one order; nothing is written but to its own folder.
/// A replica that refused a connection is tried again after a second.
fn settings(at: &str, replicas: &[&Gateway], lines: &str) -> String {
    let servers: String = replicas
        .iter()
        .map(|gateway| {
            let address = gateway.url.trim_start_matches("http://");
            format!("    server {address} max_fails=1 fail_timeout=1s;\n")
        })
        .collect();
    format!(
        "daemon off; master_process off; pid nginx.pid; error_log stderr error;
events {{ worker_connections 1024; }}
http {{
  access_log off;
  client_body_temp_path tmp; proxy_temp_path tmp; fastcgi_temp_path tmp; uwsgi_temp_path tmp; scgi_temp_path tmp;
  map $http_upgrade $connection_upgrade {{ default upgrade; '' ''; }}
  upstream replicas {{
{servers}  }}
  server {{
    listen {at};
    location / {{
      proxy_pass http://replicas;
      proxy_http_version 1.1;
      proxy_set_header Host $http_host;
      proxy_set_header Upgrade $http_upgrade;
      proxy_set_header Connection $connection_upgrade;
{lines}
      proxy_next_upstream error;
    }}
  }}
}}
"
    )
}

fn program() -> &'static str {
    // Debian keeps it where only root looks
    let found = ["/usr/sbin/nginx"].into_iter().find(|path| Path::new(path).exists());
    found.unwrap_or("nginx")
}

impl Drop for Nginx {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
        drop(fs::remove_file(Cluster::of_this_run().note_of(self.child.id())));
    }
}
