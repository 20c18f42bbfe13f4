//! How a connection is made, to the first of its hosts that will do, and what went wrong with it, in words.

use std::{
    error::Error as _,
    mem,
    ops::Deref,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use deadpool::managed::{self, Metrics, PoolError, RecycleError, RecycleResult};
use tokio::{
    task::JoinSet,
    time::{self, Instant},
};
use tokio_postgres::{Client, Socket, config::ChannelBinding, tls::MakeTlsConnect};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::{
    Config, Error,
    hosts::{self, LookUp, Place, Target, Turn},
    sql,
    tls::Tls,
    url::{self, CONNECT_TIMEOUT, Options, Server},
};

/// What drives a connection; it hears what the server says unasked.
pub(super) type Driver =
    tokio_postgres::Connection<Socket, <MakeRustlsConnect as MakeTlsConnect<Socket>>::Stream>;

/// Those that this process has.
static OPEN: AtomicUsize = AtomicUsize::new(0);

/// Counts a connection while it is driven.
struct Counted;

/// How many connections to the database this process has.
pub fn connections() -> usize {
    OPEN.load(Ordering::Relaxed)
}

/// Makes connections of one configuration.
pub(super) struct Connector {
    pub(super) config: Config,
    options: Options,
    tls: Tls,
    place: Arc<str>,
    look_up: LookUp,
    /// The one to begin with: the last that would do. One that a connection was given up on has had its turn.
    next: Mutex<Turn>,
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
            look_up: hosts::system(),
            next: Mutex::default(),
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
        let hosts = hosts::each(&all)?;
        let begin = *self.next.lock().unwrap_or_else(PoisonError::into_inner);
        let mut failures = Vec::new();
        let mut passed_over = Vec::new();
        for step in 0..hosts.len() {
            let host = (begin.host + step) % hosts.len();
            let one = &hosts[host];
            let patience = patience(one);
            let mut deadline = Instant::now() + patience;
            // Whoever waits for this may have less patience than a resolver that is silent.
            self.begin_with(Turn {
                host: host + 1,
                address: 0,
            });
            let found = hosts::targets(one, host, &self.look_up);
            let found = time::timeout_at(deadline, found).await;
            let mut targets = match found {
                Ok(Ok(targets)) => targets,
                Ok(Err(error)) => {
                    failures.push(format!("{}: {error}", Place(one)));
                    continue;
                }
                Err(_) => {
                    failures.push(format!(
                        "{}: its name was not resolved within {} s",
                        Place(one),
                        patience.as_secs()
                    ));
                    continue;
                }
            };
            if step == 0 {
                let rest = targets.split_off(begin.address.min(targets.len()));
                passed_over = mem::replace(&mut targets, rest);
            }
            for target in targets {
                match self.attempt(&target, &tls, options.server, deadline).await {
                    Ok(fresh) => return Ok(fresh),
                    Err(error) => failures.push(error),
                }
                deadline = Instant::now() + patience;
            }
        }
        for target in passed_over {
            let deadline = Instant::now() + patience(&target.postgres);
            match self.attempt(&target, &tls, options.server, deadline).await {
                Ok(fresh) => return Ok(fresh),
                Err(error) => failures.push(error),
            }
        }
        Err(Error::Connect(failures.join("; ")))
    }

    fn begin_with(&self, turn: Turn) {
        *self.next.lock().unwrap_or_else(PoisonError::into_inner) = turn;
    }

    async fn attempt(
        &self,
        target: &Target,
        tls: &MakeRustlsConnect,
        wanted: Server,
        deadline: Instant,
    ) -> Result<Fresh, String> {
        // As above: the server may be silent, too.
        self.begin_with(target.after);
        // It is large, and seldom.
        let opened = Box::pin(self.open_one(&target.postgres, tls.clone(), wanted));
        let late = || {
            let patience = patience(&target.postgres).as_secs();
            Err(format!("no answer within {patience} s"))
        };
        let opened = time::timeout_at(deadline, opened).await;
        let fresh = opened
            .unwrap_or_else(|_| late())
            .map_err(|error| format!("{}: {error}", target.place))?;
        self.begin_with(target.turn);
        Ok(fresh)
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

/// As with libpq it is the time for all of it: the name, TCP, TLS and the password. Further addresses of a name have as much each.
fn patience(postgres: &tokio_postgres::Config) -> Duration {
    let said = postgres.get_connect_timeout().copied();
    said.unwrap_or(CONNECT_TIMEOUT)
}

fn is_tls(error: &std::io::Error) -> bool {
    error
        .get_ref()
        .is_some_and(|inner| inner.is::<rustls::Error>())
}

impl Counted {
    fn new() -> Counted {
        OPEN.fetch_add(1, Ordering::Relaxed);
        Counted
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        OPEN.fetch_sub(1, Ordering::Relaxed);
    }
}

impl managed::Manager for Connector {
    type Type = Connection;
    type Error = Error;

    async fn create(&self) -> Result<Connection, Error> {
        let Fresh { client, driver, .. } = self.open(None).await?;
        let place = self.place();
        let mut task = JoinSet::new();
        let counted = Counted::new();
        task.spawn(async move {
            let _counted = counted;
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
    use std::{future, io};

    use tokio::net::TcpListener;

    use super::*;

    /// The name `slow` is never resolved, `nowhere` is none, and all others lead to this machine.
    fn connector(url: &str) -> Connector {
        let config = Config {
            url: url.into(),
            url_file: None,
            ca_file: None,
            lenient: false,
            guard: None,
        };
        let look_up: LookUp = Box::new(|name, _| match &*name {
            "slow" => Box::pin(future::pending()),
            "nowhere" => Box::pin(future::ready(Err(io::Error::other("no such name")))),
            _ => Box::pin(future::ready(Ok(vec![[127, 0, 0, 1].into()]))),
        });
        Connector {
            look_up,
            ..Connector::new(&config).unwrap()
        }
    }

    /// Says nothing to whoever connects, and tells that somebody did.
    async fn silent() -> (TcpListener, u16) {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        (listener, port)
    }

    #[tokio::test]
    async fn a_name_that_is_not_resolved_costs_its_own_patience_and_no_more() {
        let (listener, port) = silent().await;
        let url = format!(
            "postgres://u:hunter2@slow:1,nowhere:1,here:1,here:{port}/d?connect_timeout=1&sslmode=disable"
        );
        let connector = connector(&url);
        let served = async {
            let (connection, _) = listener.accept().await.unwrap();
            drop(connection);
        };
        let (opened, ()) = tokio::join!(connector.open(None), served);
        let error = opened.err().unwrap().to_string();
        for want in [
            "slow:1 (database d): its name was not resolved within 1 s; ",
            "nowhere:1 (database d): no such name; ",
            "here:1 (database d): error connecting to server: Connection refused",
            &format!("here:{port} (database d): "),
        ] {
            assert!(error.contains(want), "{want}: {error}");
        }
        assert!(!error.contains("hunter2"), "{error}");
    }

    #[tokio::test]
    async fn who_gives_up_on_a_name_that_is_not_resolved_begins_with_the_next_host() {
        let (listener, port) = silent().await;
        let connector = connector(&format!("postgres://slow:1,here:{port}/d"));
        let little = Duration::from_millis(50);
        let given_up = time::timeout(little, connector.open(None)).await;
        assert!(given_up.is_err(), "its patience is longer");
        tokio::select! {
            _ = connector.open(None) => panic!("nobody answers"),
            connected = listener.accept() => drop(connected.unwrap()),
        }
    }

    #[tokio::test]
    async fn who_gives_up_on_an_address_begins_with_the_next_and_misses_none() {
        let (listener, port) = silent().await;
        let mut connector = connector(&format!(
            "postgres://many:{port}/d?sslmode=disable&connect_timeout=1"
        ));
        let addresses = vec![[127, 0, 0, 2].into(), [127, 0, 0, 1].into()];
        connector.look_up = Box::new(move |_, _| Box::pin(future::ready(Ok(addresses.clone()))));
        connector.begin_with(Turn {
            host: 0,
            address: 1,
        });
        // Nobody listens at the first of the two.
        tokio::select! {
            _ = connector.open(None) => panic!("the second says nothing for a second"),
            connected = listener.accept() => drop(connected.unwrap()),
        }
        assert_eq!(
            *connector.next.lock().unwrap(),
            Turn {
                host: 1,
                address: 0
            }
        );
        connector.begin_with(Turn {
            host: 0,
            address: 1,
        });
        let error = connector.open(None).await.err().unwrap().to_string();
        let first = error.find("many[127.0.0.2]").unwrap();
        let second = error.find("many[127.0.0.1]").unwrap();
        assert!(second < first, "{error}");
    }

    #[tokio::test]
    async fn a_name_that_does_not_exist_is_named_without_the_password() {
        // Too long for a name, so nobody is asked for it.
        let name = "h".repeat(300);
        let url = format!("postgres://u:hunter2@{name}/d");
        let mut connector = connector(&url);
        connector.look_up = hosts::system();
        let error = connector.open(None).await.err().unwrap().to_string();
        let start = format!("can't connect to the database: {name}:5432 (database d): ");
        assert!(
            error.starts_with(&start) && !error.contains("hunter2"),
            "{error}"
        );
    }
}
