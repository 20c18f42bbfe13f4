//! The image at work, with nothing else around it, as the first process of a container.

use std::{fs, net::Ipv4Addr, path::Path, sync::Arc, time::Duration};

use futures_util::future::join_all;
use outbox_relay::lab::receiver::{Receiver, Reply};
use rustix::process::{Signal, geteuid, kill_process};
use rustls::{
    ServerConfig,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};
use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
    process::Command,
    task::JoinSet,
    time::timeout,
};
use tokio_rustls::TlsAcceptor;

use super::{Image, REPOSITORY, strings};
use crate::support::{
    binary::{Directory, Process},
    database, eventually,
    rows::{SOON, all_settled, assert_nothing_left, insert},
    secure::{Ca, Pair},
};

/// Whose root, processes and mounts are its own: made by root, or by anybody in a user namespace.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    Root,
    UserNamespace,
}

// === impl Way ===

impl Way {
    /// As root both ways, else the one that is left.
    fn all() -> Vec<Way> {
        match geteuid().is_root() {
            true => vec![Way::Root, Way::UserNamespace],
            false => vec![Way::UserNamespace],
        }
    }

    /// `unshare`, for the arguments that follow.
    fn unshare(self) -> Command {
        let mut command = Command::new("unshare");
        if self == Way::UserNamespace {
            if geteuid().is_root() {
                command = Command::new("setpriv");
                command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
                command.arg("unshare");
            }
            command.arg("--map-root-user");
        }
        command
    }

    /// The image's command with these arguments, as process 1, in a root that is read-only. In a user namespace of one user there is nobody
    /// else to be.
    fn contain(self, root: &Path, image: &Image, arguments: &[&str], database: &str) -> Command {
        let config = image.config();
        let user = config["config"]["User"].as_str().unwrap();
        let chroot = match self {
            Way::Root => format!("chroot --groups= --userspec={user}"),
            Way::UserNamespace => "chroot".to_owned(),
        };
        let script = format!(
            "mount --bind \"$0\" \"$0\" && mount -o remount,bind,ro \"$0\" && \
             mount --bind /dev/random \"$0/dev/random\" && mount --bind /dev/urandom \"$0/dev/urandom\" && \
             exec setpriv --no-new-privs {chroot} \"$0\" \"$@\""
        );
        let mut command = self.unshare();
        command
            .args(["--mount", "--pid", "--fork", "--kill-child"])
            .args(["sh", "-c", &script])
            .arg(root)
            .args(strings(&config["config"]["Entrypoint"]))
            .args(arguments)
            .env_remove("RUST_LOG")
            .env_remove("SSL_CERT_FILE")
            .env_remove("SSL_CERT_DIR")
            .env("DATABASE_URL", database);
        for variable in strings(&config["config"]["Env"]) {
            let (name, value) = variable.split_once('=').unwrap();
            command.env(name, value);
        }
        command
    }
}

/// Answers TLS with this certificate, and passes what comes on to a port.
async fn terminate_tls(pair: &Pair, to: u16) -> (u16, JoinSet<()>) {
    let chain = CertificateDer::from_pem_slice(pair.cert.as_bytes()).unwrap();
    let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes()).unwrap();
    let server = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![chain], key)
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(server));
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let mut connections = JoinSet::new();
        while let Ok((stream, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            connections.spawn(async move {
                // A handshake that fails is told by the relay.
                let Ok(mut inside) = acceptor.accept(stream).await else {
                    return;
                };
                let mut outside = TcpStream::connect((Ipv4Addr::LOCALHOST, to)).await.unwrap();
                copy_bidirectional(&mut inside, &mut outside).await.ok();
            });
        }
    });
    (port, tasks)
}

/// Signals what is process 1 in its own namespace, as a runtime does it from outside.
async fn terminate(contained: &Process) {
    eventually("it is there", SOON, async || contained.child().is_some()).await;
    kill_process(contained.child().unwrap(), Signal::TERM).unwrap();
}

/// In one test, since linking and packing take the most time of it. A machine that lets nobody have namespaces fails it, and it says so.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_image_works_as_process_1_with_nothing_else_around_it() {
    let (directory, ca) = (Directory::new(), Ca::new());
    for way in Way::all() {
        let mut command = way.unshare();
        let tried = command.args(["--mount", "--pid", "--net", "--fork", "true"]);
        let tried = tried.output().await.unwrap();
        let error = String::from_utf8_lossy(&tried.stderr);
        assert!(
            tried.status.success(),
            "no namespaces on this machine, {way:?}: {error}"
        );
    }
    let image = Image::debug(&directory, &ca).await;
    it_delivers_over_tls_and_ends_at_sigterm_with_what_is_on_its_way(&directory, &image, &ca).await;
    it_ends_at_sigterm_while_it_waits_for_a_database(&directory, &image).await;
    it_asks_the_name_server_without_any_file_but_resolv_conf(&image).await;
}

/// Nobody, a root that can't be written to and holds the image only; names from its hosts file, trust from its authorities.
async fn it_delivers_over_tls_and_ends_at_sigterm_with_what_is_on_its_way(
    directory: &Directory,
    image: &Image,
    ca: &Ca,
) {
    let receiver = Receiver::start(|request| match request.number % 4 {
        // On its way when the signal comes.
        0 => Reply::status(200).after(Duration::from_secs(1)),
        _ => Reply::status(200),
    })
    .unwrap();
    let (port, _tls) = terminate_tls(&ca.issue("receiver.test"), receiver.port()).await;
    let url = format!("https://receiver.test:{port}/hook");
    let config = directory.config(&url, "[http]\nlisten = \"127.0.0.1:0\"");
    let root = image.root("delivers", &fs::read_to_string(config).unwrap());
    let run = ["run", "--config", "/etc/outbox-relay/relay.toml"];
    let mut sent = 0;
    for way in Way::all() {
        let database = database().await;
        let client = database.connect().await;
        let command = way.contain(&root, image, &run, &database.url);
        let mut relay = directory.spawn(command, "relay");
        insert(&client, "order.created", 3).await;
        let served = receiver.wait_for(sent + 3, SOON).await;
        served.unwrap_or_else(|error| panic!("{way:?}: {error}\n{}", relay.log()));
        insert(&client, "order.created", 1).await;
        receiver.wait_for(sent + 4, SOON).await.unwrap();
        sent += 4;

        let inside = relay.child().unwrap().as_raw_nonzero();
        let status = fs::read_to_string(format!("/proc/{inside}/status")).unwrap();
        let process = format!("NSpid:\t{inside}\t1\n");
        let user = match way {
            Way::Root => "Uid:\t65532\t65532\t65532\t65532\n",
            Way::UserNamespace => "NoNewPrivs:\t1\n",
        };
        for line in [process.as_str(), user, "NoNewPrivs:\t1\n"] {
            assert!(status.contains(line), "{way:?}: {line}: {status}");
        }

        terminate(&relay).await;
        let end = relay.end(SOON).await;
        assert_eq!(end.code(), Some(0), "{way:?}: {}", relay.log());
        all_settled(&client, Duration::ZERO).await;
        assert_nothing_left(&client).await;
        assert_eq!(receiver.count(), sent, "nothing was sent twice");
    }
}

/// The kernel keeps signals that nobody listens for from a first process.
async fn it_ends_at_sigterm_while_it_waits_for_a_database(directory: &Directory, image: &Image) {
    // What a server that is silent may take after the signal.
    let config = directory.config("http://receiver.test/", "grace = \"1s\"");
    let root = &image.root("waits", &fs::read_to_string(config).unwrap());
    let config = ["--config", "/etc/outbox-relay/relay.toml"];
    let commands = [
        ([&["run"], &config[..]].concat(), 0),
        ([&["check"], &config[..]].concat(), 1),
        (vec!["migrate"], 1),
    ];
    let each = commands.iter().flat_map(|(arguments, code)| {
        let ways = Way::all().into_iter();
        ways.map(move |way| async move {
            // It takes connections, and says nothing.
            let silent = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
            let port = silent.local_addr().unwrap().port();
            let url = format!("postgres://relay@127.0.0.1:{port}/app?connect_timeout=600");
            let command = way.contain(root, image, arguments, &url);
            let name = format!("waits-{}-{way:?}", arguments[0]);
            let mut waits = directory.spawn(command, &name);
            let connected = timeout(SOON, silent.accept()).await;
            let _open = connected.unwrap_or_else(|_| panic!("{name}: {}", waits.log()));
            terminate(&waits).await;
            let end = waits.end(SOON).await;
            assert_eq!(end.code(), Some(*code), "{name}: {}", waits.log());
        })
    });
    join_all(each).await;
}

/// The C library is linked in, and would load what else it resolves names with.
async fn it_asks_the_name_server_without_any_file_but_resolv_conf(image: &Image) {
    let root = image.root("asks", "");
    fs::remove_file(root.join("etc/hosts")).unwrap();
    for (host, error) in [
        ("receiver.test", "Connection refused"),
        ("nowhere.test", "failed to lookup address information"),
    ] {
        for way in Way::all() {
            let asked = way
                .unshare()
                .args(["--net", "python3"])
                .arg(format!("{REPOSITORY}/tests/it/image/resolver.py"))
                .arg("chroot")
                .arg(&root)
                .args(["/outbox-relay", "status"])
                .env("DATABASE_URL", format!("postgres://relay@{host}:1/app"))
                .kill_on_drop(true)
                .output();
            let asked = timeout(SOON, asked).await.unwrap().unwrap();
            let said = String::from_utf8_lossy(&asked.stderr);
            assert!(said.contains(error), "{way:?}: {host}: {said}");
        }
    }
}
