//! How a connection is made, to the first of its hosts that will do, and what went wrong with it, in words.

use std::{
    error::Error as _,
    fmt,
    net::{IpAddr, SocketAddr},
    ops::Deref,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use deadpool::managed::{self, Metrics, PoolError, RecycleError, RecycleResult};
use tokio::{net, task::JoinSet, time};
use tokio_postgres::{
    Client, Socket,
    config::{ChannelBinding, Host},
    tls::MakeTlsConnect,
};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::{
    Config, Error, sql,
    tls::Tls,
    url::{self, CONNECT_TIMEOUT, Options, Server},
};

/// What drives a connection; it hears what the server says unasked.
pub(super) type Driver =
    tokio_postgres::Connection<Socket, <MakeRustlsConnect as MakeTlsConnect<Socket>>::Stream>;

/// Makes connections of one configuration.
pub(super) struct Connector {
    pub(super) config: Config,
    options: Options,
    tls: Tls,
    place: Arc<str>,
    /// The target to begin with: the last that would do. One that a connection was given up on has had its turn.
    next: AtomicUsize,
}

/// One that was made and is not driven yet.
pub(super) struct Fresh {
    pub(super) client: Client,
    pub(super) driver: Driver,
    pub(super) tls: MakeRustlsConnect,
}

/// One in the pool. It ends when it is dropped.
pub(super) struct Connection {
    client: Client,
    _driver: JoinSet<()>,
}

pub(super) type Pool = managed::Pool<Connector>;
pub(super) type Object = managed::Object<Connector>;

// === impl Connector ===

impl Connector {
    /// Reads all that the configuration names.
    pub(super) fn new(config: &Config) -> Result<Connector, Error> {
        let options = url::options(config)?;
        Ok(Connector {
            config: config.clone(),
            tls: Tls::new(&options.trust)?,
            place: Place(&options.postgres).to_string().into(),
            options,
            next: AtomicUsize::new(0),
        })
    }

    /// Where it connects to, for messages: hosts, ports and the database.
    pub(super) fn place(&self) -> Arc<str> {
        Arc::clone(&self.place)
    }

    /// Connects, host by host. `purpose` is added to the name that the server shows.
    pub(super) async fn open(&self, purpose: Option<&str>) -> Result<Fresh, Error> {
        let options = self.renewed();
        let options = options.as_ref().unwrap_or(&self.options);
        let mut all = options.postgres.clone();
        if let Some(purpose) = purpose {
            let name = all.get_application_name().unwrap_or_default();
            let name = format!("{name} {purpose}");
            all.application_name(name);
        }
        let tls = self.tls.current();
        let (targets, mut failures) = targets(&all).await?;
        let first = self.next.load(Ordering::Relaxed);
        for step in 0..targets.len() {
            let number = (first + step) % targets.len();
            let one = &targets[number];
            // Whoever waits for this may have less patience than one that is silent.
            self.next.store(number + 1, Ordering::Relaxed);
            // As with libpq it is the time for all of it, TLS and password included.
            let patience = one
                .get_connect_timeout()
                .copied()
                .unwrap_or(CONNECT_TIMEOUT);
            let opened = time::timeout(patience, self.open_one(one, tls.clone(), options.server));
            let late = || Err(format!("no answer within {} s", patience.as_secs()));
            match opened.await.unwrap_or_else(|_| late()) {
                Ok(fresh) => {
                    self.next.store(number, Ordering::Relaxed);
                    return Ok(fresh);
                }
                Err(error) => failures.push(format!("{}: {error}", Place(one))),
            }
        }
        Err(Error::Connect(failures.join("; ")))
    }

    async fn open_one(
        &self,
        postgres: &tokio_postgres::Config,
        tls: MakeRustlsConnect,
        wanted: Server,
    ) -> Result<Fresh, String> {
        let made = postgres.connect(tls.clone()).await;
        let (client, mut driver) = made.map_err(|error| self.why(postgres, &error))?;
        if wanted != Server::Any {
            let asked = client.query_typed(sql::STANDBY.text, &[]);
            let rows = tokio::select! {
                rows = asked => rows.map_err(|error| explain(&error))?,
                _ = &mut driver => return Err("the connection broke at once".into()),
            };
            let is = |column| rows.first().is_some_and(|row| row.get(column));
            if is("standby") {
                return Err("this server is a standby (read-only)".into());
            }
            if wanted == Server::ReadWrite && is("read_only") {
                return Err(
                    "its transactions are read-only by default (default_transaction_read_only), and the URL asks for \
                     target_session_attrs=read-write"
                        .into(),
                );
            }
        }
        Ok(Fresh {
            client,
            driver,
            tls,
        })
    }

    /// Why a connection could not be made, with what that depends on.
    fn why(&self, postgres: &tokio_postgres::Config, error: &tokio_postgres::Error) -> String {
        let mut text = explain(error);
        let source = error.source().and_then(|source| source.downcast_ref());
        if source.is_some_and(is_tls) {
            text.push_str(&self.tls.explain());
        }
        if error.as_db_error().is_none()
            && postgres.get_channel_binding() == ChannelBinding::Require
            && text.contains("channel binding")
        {
            text.push_str(
                ": channel_binding=require needs TLS and a password kept as SCRAM-SHA-256",
            );
        }
        text
    }
}

fn is_tls(error: &std::io::Error) -> bool {
    error
        .get_ref()
        .is_some_and(|inner| inner.is::<rustls::Error>())
}

impl managed::Manager for Connector {
    type Type = Connection;
    type Error = Error;

    async fn create(&self) -> Result<Connection, Error> {
        // It is large, and seldom.
        let Fresh { client, driver, .. } = Box::pin(self.open(None)).await?;
        let place = self.place();
        let mut task = JoinSet::new();
        task.spawn(async move {
            if let Err(error) = driver.await {
                tracing::warn!(%place, error = explain(&error), "a connection to the database broke");
            }
        });
        Ok(Connection {
            client,
            _driver: task,
        })
    }

    async fn recycle(&self, connection: &mut Connection, _: &Metrics) -> RecycleResult<Error> {
        match connection.is_closed() {
            true => Err(RecycleError::message("it is closed")),
            false => Ok(()),
        }
    }
}

impl Deref for Connection {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.client
    }
}

// === hosts ===

/// Each host, and each address of a name that has several; and what is wrong with those that have none.
async fn targets(
    all: &tokio_postgres::Config,
) -> Result<(Vec<tokio_postgres::Config>, Vec<String>), Error> {
    let (mut targets, mut failures) = (Vec::new(), Vec::new());
    for number in 0..all.get_hosts().len().max(all.get_hostaddrs().len()) {
        let one = alone(all, number).map_err(|error| Error::Config(error.into()))?;
        match addresses(&one).await {
            Ok(found) if found.len() > 1 => {
                for address in found {
                    let mut at = one.clone();
                    at.hostaddr(address);
                    targets.push(at);
                }
            }
            Ok(_) => targets.push(one),
            Err(error) => failures.push(format!("{}: {error}", Place(&one))),
        }
    }
    Ok((targets, failures))
}

/// Where the name of the only host leads; none where it is no name.
async fn addresses(one: &tokio_postgres::Config) -> std::io::Result<Vec<IpAddr>> {
    match (one.get_hosts(), one.get_hostaddrs()) {
        ([Host::Tcp(name)], []) => {
            let port = one.get_ports().first().copied().unwrap_or(5432);
            let mut found = Vec::new();
            for address in net::lookup_host((name.as_str(), port)).await? {
                if !found.contains(&address.ip()) {
                    found.push(address.ip());
                }
            }
            Ok(found)
        }
        _ => Ok(Vec::new()),
    }
}

/// The same way to connect, to the host of this number only.
fn alone(
    all: &tokio_postgres::Config,
    number: usize,
) -> Result<tokio_postgres::Config, &'static str> {
    let (hosts, addresses, ports) = (all.get_hosts(), all.get_hostaddrs(), all.get_ports());
    let many = hosts.len().max(addresses.len());
    if !hosts.is_empty() && !addresses.is_empty() && hosts.len() != addresses.len() {
        return Err("there are not as many hostaddr as host");
    }
    if ports.len() > 1 && ports.len() != many {
        return Err("there are not as many ports as hosts");
    }
    let mut one = tokio_postgres::Config::new();
    match hosts.get(number) {
        Some(Host::Tcp(name)) => drop(one.host(name)),
        Some(Host::Unix(path)) => drop(one.host_path(path)),
        None => {}
    }
    if let Some(address) = addresses.get(number) {
        one.hostaddr(*address);
    }
    if let Some(port) = ports.get(number).or_else(|| ports.first()) {
        one.port(*port);
    }
    if let Some(user) = all.get_user() {
        one.user(user);
    }
    if let Some(password) = all.get_password() {
        one.password(password);
    }
    if let Some(name) = all.get_dbname() {
        one.dbname(name);
    }
    if let Some(options) = all.get_options() {
        one.options(options);
    }
    if let Some(name) = all.get_application_name() {
        one.application_name(name);
    }
    if let Some(timeout) = all.get_connect_timeout() {
        one.connect_timeout(*timeout);
    }
    if let Some(timeout) = all.get_tcp_user_timeout() {
        one.tcp_user_timeout(*timeout);
    }
    if let Some(interval) = all.get_keepalives_interval() {
        one.keepalives_interval(interval);
    }
    if let Some(retries) = all.get_keepalives_retries() {
        one.keepalives_retries(retries);
    }
    one.keepalives(all.get_keepalives())
        .keepalives_idle(all.get_keepalives_idle())
        .ssl_mode(all.get_ssl_mode())
        .ssl_negotiation(all.get_ssl_negotiation())
        .channel_binding(all.get_channel_binding())
        .load_balance_hosts(all.get_load_balance_hosts());
    Ok(one)
}

/// Shows where a way to connect leads, and nothing of the password.
struct Place<'a>(&'a tokio_postgres::Config);

impl fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (hosts, addresses, ports) = (
            self.0.get_hosts(),
            self.0.get_hostaddrs(),
            self.0.get_ports(),
        );
        for number in 0..hosts.len().max(addresses.len()) {
            let port = ports.get(number).or_else(|| ports.first());
            let port = port.copied().unwrap_or(5432);
            if number > 0 {
                f.write_str(",")?;
            }
            match (hosts.get(number), addresses.get(number)) {
                (Some(Host::Unix(path)), _) => write!(f, "{}/.s.PGSQL.{port}", path.display())?,
                (Some(Host::Tcp(name)), Some(address)) => write!(f, "{name}[{address}]:{port}")?,
                (Some(Host::Tcp(name)), None) if name.contains(':') => {
                    write!(f, "[{name}]:{port}")?;
                }
                (Some(Host::Tcp(name)), None) => write!(f, "{name}:{port}")?,
                (None, Some(address)) => {
                    write!(f, "{}", SocketAddr::new(*address, port))?;
                }
                (None, None) => {}
            }
        }
        match self.0.get_dbname().or(self.0.get_user()) {
            Some(database) => write!(f, " (database {database})"),
            None => Ok(()),
        }
    }
}

// === words ===

/// The whole story of a database error on one line: the server's message, detail, hint and SQLSTATE, or the chain of causes.
pub(super) fn explain(error: &tokio_postgres::Error) -> String {
    if let Some(server) = error.as_db_error() {
        let mut text = format!("{} (SQLSTATE {})", server.message(), server.code().code());
        for more in [server.detail(), server.hint()].into_iter().flatten() {
            text.push_str("; ");
            text.push_str(more);
        }
        return text.replace('\n', " ");
    }
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text.replace('\n', " ")
}

/// What the pool says.
pub(super) fn explain_pool(place: &str, error: PoolError<Error>) -> Error {
    match error {
        PoolError::Backend(error) => error,
        PoolError::Timeout(_)
        | PoolError::Closed
        | PoolError::NoRuntimeSpecified
        | PoolError::PostCreateHook(_) => Error::Connect(format!("{place}: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn each_target_is_named_without_its_password() {
        let table = [
            ("postgres://u:hunter2@h/d", vec!["h:5432 (database d)"]),
            (
                "postgres://u:hunter2@h:1,i:2",
                vec!["h:1 (database u)", "i:2 (database u)"],
            ),
            (
                "host=h,i port=3 dbname=d",
                vec!["h:3 (database d)", "i:3 (database d)"],
            ),
            (
                "host=h hostaddr=192.0.2.1 dbname=d",
                vec!["h[192.0.2.1]:5432 (database d)"],
            ),
            (
                "hostaddr=192.0.2.1,2001:db8::1",
                vec!["192.0.2.1:5432", "[2001:db8::1]:5432"],
            ),
            (
                "postgres://[2001:db8::1]:7/d",
                vec!["[2001:db8::1]:7 (database d)"],
            ),
            (
                "host=/run/pg user=u",
                vec!["/run/pg/.s.PGSQL.5432 (database u)"],
            ),
        ];
        for (url, want) in table {
            let config: tokio_postgres::Config = url.parse().unwrap();
            let hosts = config.get_hosts().len().max(config.get_hostaddrs().len());
            let shown = |number| Place(&alone(&config, number).unwrap()).to_string();
            assert_eq!((0..hosts).map(shown).collect::<Vec<_>>(), want, "{url}");
        }
        let numbers = ["host=h,i hostaddr=192.0.2.1", "host=h,i port=1,2,3"];
        for url in numbers {
            let config = url.parse().unwrap();
            let error = targets(&config).await.err().unwrap().to_string();
            assert!(error.contains("not as many"), "{url}: {error}");
        }
        // Too long for a name, so nobody is asked for it.
        let name = "h".repeat(300);
        let nowhere = format!("postgres://u:hunter2@{name}/d").parse().unwrap();
        let (none, failures) = targets(&nowhere).await.unwrap();
        assert!(none.is_empty());
        let start = format!("{name}:5432 (database d): ");
        assert!(failures[0].starts_with(&start), "{failures:?}");
        let same = "postgres://u:hunter2@h:1/d?options=-csearch_path%3Dx&application_name=a&connect_timeout=3&keepalives=0\
                    &keepalives_interval=4&keepalives_retries=5&keepalives_idle=6&tcp_user_timeout=7&channel_binding=require\
                    &sslnegotiation=direct&load_balance_hosts=random&sslmode=require";
        let same: tokio_postgres::Config = same.parse().unwrap();
        assert!(alone(&same, 0).unwrap() == same, "nothing is lost");
    }
}
