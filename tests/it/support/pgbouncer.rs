//! A PgBouncer in transaction mode before the server of the tests.
use std::{net::TcpListener, path::Path, process::Stdio, time::Duration};

use rustix::process::geteuid;
use tokio::{
    net::TcpStream,
    process::{Child, Command},
};

use super::{binary::Directory, eventually};

pub(crate) struct PgBouncer {
    port: u16,
    _child: Child,
    _directory: Directory,
}

impl PgBouncer {
    /// Before the server of this URL, on a free port.
    pub(crate) async fn start(url: &str) -> PgBouncer {
        PgBouncer::with(url, 10).await
    }

    /// One with so many sessions for a database, which take turns after each transaction.
    pub(crate) async fn with(url: &str, sessions: usize) -> PgBouncer {
        let url: reqwest::Url = url.parse().unwrap();
        let server = url.port().unwrap();
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        drop(listener);
        let directory = Directory::new();
        let ini = directory.write(
            "pgbouncer.ini",
            &format!(
                "[databases]\n* = host=127.0.0.1 port={server} user=postgres\n\
                 [pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\nauth_type = any\n\
                 pool_mode = transaction\nmax_client_conn = 200\ndefault_pool_size = {sessions}\n\
                 server_round_robin = 1\n\
                 ignore_startup_parameters = extra_float_digits\n"
            ),
        );
        let sbin = Path::new("/usr/sbin/pgbouncer");
        let mut command = match sbin.exists() {
            true => Command::new(sbin),
            false => Command::new("pgbouncer"),
        };
        // It refuses to run as root, and steps down by itself.
        if geteuid().is_root() {
            command.args(["-u", "nobody"]);
        }
        let child = command
            .arg(&ini)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .expect("scripts/setup has installed PgBouncer");
        eventually("PgBouncer listens", Duration::from_secs(20), async || {
            TcpStream::connect(("127.0.0.1", port)).await.is_ok()
        })
        .await;
        PgBouncer {
            port,
            _child: child,
            _directory: directory,
        }
    }

    /// The URL of a database that goes through it.
    pub(crate) fn url(&self, url: &str) -> String {
        let mut url: reqwest::Url = url.parse().unwrap();
        url.set_port(Some(self.port)).unwrap();
        url.into()
    }
}
