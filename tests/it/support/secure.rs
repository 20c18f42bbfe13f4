//! A PostgreSQL that speaks TLS, and the authorities behind it.
use std::{
    fs::{self, Permissions},
    os::unix::fs::{MetadataExt, PermissionsExt, chown},
    path::{Path, PathBuf},
    sync::atomic::{AtomicU32, Ordering},
};

use outbox_relay::lab::cluster::{Cluster, Options};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, date_time_ymd};
use tokio::task::JoinSet;
use tokio_postgres::{Client, NoTls};

/// An authority.
pub(crate) struct Ca {
    pub(crate) pem: String,
    issuer: Issuer<'static, KeyPair>,
}

/// A certificate and its key, in PEM.
pub(crate) struct Pair {
    pub(crate) cert: String,
    pub(crate) key: String,
}

/// The server, with TLS or without.
pub(crate) struct Secure {
    pub(crate) cluster: Cluster,
    pub(crate) admin: Client,
    _connection: JoinSet<()>,
}

impl Ca {
    pub(crate) fn new() -> Ca {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        let name = format!("authority {number}");
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let pem = params.self_signed(&key).unwrap().pem();
        let issuer = Issuer::new(params, key);
        Ca { pem, issuer }
    }

    /// For this name, which is the subject's, too.
    pub(crate) fn issue(&self, name: &str) -> Pair {
        self.sign(name, |_| {})
    }

    /// One whose time is over.
    pub(crate) fn issue_expired(&self, name: &str) -> Pair {
        self.sign(name, expire)
    }

    /// One that vouches for itself, as PostgreSQL's manual makes it for a start.
    pub(crate) fn itself(name: &str) -> Pair {
        Ca::alone(name, |_| {})
    }

    /// The same, and its time is over.
    pub(crate) fn itself_expired(name: &str) -> Pair {
        Ca::alone(name, expire)
    }

    fn alone(name: &str, change: impl FnOnce(&mut CertificateParams)) -> Pair {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new([name.to_owned()]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        change(&mut params);
        Pair {
            cert: params.self_signed(&key).unwrap().pem(),
            key: key.serialize_pem(),
        }
    }

    fn sign(&self, name: &str, change: impl FnOnce(&mut CertificateParams)) -> Pair {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new([name.to_owned()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        change(&mut params);
        Pair {
            cert: params.signed_by(&key, &self.issuer).unwrap().pem(),
            key: key.serialize_pem(),
        }
    }
}

impl Secure {
    /// Without TLS yet.
    pub(crate) async fn start() -> Secure {
        let cluster = Cluster::start(Options::default()).await.unwrap();
        let url = cluster.url("postgres");
        let (admin, connection) = tokio_postgres::connect(&url, NoTls).await.unwrap();
        let mut driver = JoinSet::new();
        driver.spawn(async move {
            connection.await.ok();
        });
        Secure {
            cluster,
            admin,
            _connection: driver,
        }
    }

    /// The URL of database `postgres` at this host name, with this query.
    pub(crate) fn url(&self, user: &str, host: &str, query: &str) -> String {
        let port = self.cluster.port();
        format!("postgres://{user}@{host}:{port}/postgres?{query}")
    }

    /// Shows this certificate from now on.
    pub(crate) async fn show(&self, pair: &Pair) {
        self.write("server.crt", &pair.cert);
        self.write("server.key", &pair.key);
        self.set("ssl", "on").await;
    }

    /// Sets something in the server's directory, whose path is the value, or anything else.
    pub(crate) async fn set(&self, name: &str, value: &str) {
        let set = format!("alter system set {name} = '{value}'");
        self.admin.batch_execute(&set).await.unwrap();
        self.reload().await;
    }

    /// Writes a file that the server reads, and returns its path.
    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        let data = self.cluster.socket_dir().join("data");
        let path = data.join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        give(&path, &data);
        path
    }

    /// How clients prove who they are; before all else that is said there.
    pub(crate) async fn hba(&self, lines: &str) {
        let path = self.cluster.socket_dir().join("data/pg_hba.conf");
        let before = fs::read_to_string(path).unwrap();
        self.write("pg_hba.conf", &format!("{lines}\n{before}"));
        self.reload().await;
    }

    /// Waits until the server has read its files again: the postmaster takes that before the next connection.
    async fn reload(&self) {
        let lines = || {
            let log = fs::read_to_string(self.cluster.log_path()).unwrap();
            log.matches("received SIGHUP").count()
        };
        let before = lines();
        let reload = "select pg_reload_conf()";
        self.admin.batch_execute(reload).await.unwrap();
        super::eventually("it is reloaded", super::rows::SOON, async || {
            lines() > before
        })
        .await;
        // It says so before it has read them; connections are made by the same process, one after the other.
        for _ in 0..2 {
            drop(tokio_postgres::connect(&self.cluster.url("postgres"), NoTls).await);
        }
    }
}

fn expire(params: &mut CertificateParams) {
    params.not_before = date_time_ymd(2020, 1, 1);
    params.not_after = date_time_ymd(2020, 2, 1);
}

/// Makes a file belong to whom its directory belongs.
fn give(path: &Path, directory: &Path) {
    let owner = fs::metadata(directory).unwrap();
    chown(path, Some(owner.uid()), Some(owner.gid())).unwrap();
}
