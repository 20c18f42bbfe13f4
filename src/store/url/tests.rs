use super::*;

fn config(url: &str) -> Config {
    Config {
        url: url.into(),
        url_file: None,
        ca_file: None,
        lenient: false,
        guard: None,
    }
}

fn read(url: &str) -> Options {
    options(&config(url)).unwrap_or_else(|error| panic!("{url}: {error}"))
}

fn refused(url: &str) -> String {
    match options(&config(url)) {
        Ok(_) => panic!("{url} was accepted"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn the_modes_of_libpq_are_understood() {
    let private = Authorities::File("/ca.pem".into());
    let table = [
        ("", SslMode::Prefer, Check::Nothing),
        ("sslmode=disable", SslMode::Disable, Check::Nothing),
        ("sslmode=allow", SslMode::Prefer, Check::Nothing),
        ("sslmode=prefer", SslMode::Prefer, Check::Nothing),
        ("sslmode=require", SslMode::Require, Check::Nothing),
        ("sslmode=verify-full", SslMode::Require, Check::Name),
        ("sslrootcert=system", SslMode::Require, Check::Name),
        (
            "sslmode=verify-full sslrootcert=system",
            SslMode::Require,
            Check::Name,
        ),
        ("sslrootcert=/ca.pem", SslMode::Prefer, Check::Chain),
        (
            "sslmode=disable sslrootcert=/ca.pem",
            SslMode::Disable,
            Check::Nothing,
        ),
        (
            "sslmode=require sslrootcert=/ca.pem",
            SslMode::Require,
            Check::Chain,
        ),
        (
            "sslmode=verify-ca sslrootcert=/ca.pem",
            SslMode::Require,
            Check::Chain,
        ),
        (
            "sslmode=verify-full sslrootcert=/ca.pem",
            SslMode::Require,
            Check::Name,
        ),
    ];
    for (words, mode, check) in table {
        for url in [
            format!("postgres://u:p@localhost/db?{}", words.replace(' ', "&")),
            format!("host=localhost user=u password=p dbname=db {words}"),
        ] {
            let options = read(&url);
            assert_eq!(options.postgres.get_ssl_mode(), mode, "{url}");
            assert_eq!(options.trust.check, check, "{url}");
            assert_eq!(
                options.trust.authorities == private,
                words.contains("/ca"),
                "{url}"
            );
            assert_eq!(options.postgres.get_dbname(), Some("db"), "{url}");
            assert_eq!(options.postgres.get_password(), Some(&b"p"[..]), "{url}");
        }
    }
}

#[test]
fn ca_file_and_sslrootcert_are_the_same() {
    let with = |url: &str| {
        let config = Config {
            ca_file: Some("/ca.pem".into()),
            ..config(url)
        };
        options(&config).map(|options| options.trust)
    };
    let url = "postgres://h/d?sslmode=verify-ca";
    let in_url = read(&format!("{url}&sslrootcert=%2Fca.pem")).trust;
    assert_eq!(with(url).unwrap(), in_url);
    assert_eq!(with(&format!("{url}&sslrootcert=/ca.pem")).unwrap(), in_url);
    for other in ["/other.pem", "system"] {
        let error = with(&format!(
            "postgres://h/d?sslmode=verify-full&sslrootcert={other}"
        ));
        let error = error.unwrap_err().to_string();
        assert!(error.contains("name different authorities"), "{error}");
    }
}

#[test]
fn what_would_check_nothing_or_can_not_work_is_refused() {
    let table = [
        ("sslmode=verify-ca", "needs an authority of your own"),
        (
            "sslmode=require&sslrootcert=system",
            "needs sslmode=verify-full",
        ),
        (
            "sslmode=verify-ca&sslrootcert=system",
            "needs sslmode=verify-full",
        ),
        ("sslmode=hunter2", "invalid value for option `sslmode`"),
        ("sslcert=/c", "sslcert and sslkey go together"),
        ("sslkey=/c", "sslcert and sslkey go together"),
        ("target_session_attrs=read-only", "at a primary only"),
        ("target_session_attrs=prefer-standby", "at a primary only"),
        (
            "target_session_attrs=hunter2",
            "invalid value for option `target_session_attrs`",
        ),
        ("nonsense=1", "unknown option `nonsense`"),
        ("sslmode", "unterminated parameter"),
    ];
    for (words, want) in table {
        let error = refused(&format!("postgres://u:hunter2@localhost/db?{words}"));
        assert!(error.contains(want), "{words}: {error}");
        assert!(!error.contains("hunter2"), "{error}");
    }
    assert!(refused("dbname=d").contains("it names no host"));
    assert!(refused("service=s").contains("service is not supported"));
}

#[test]
fn a_primary_is_looked_for_where_there_is_a_choice() {
    let table = [
        ("postgres://h/d", Server::Any),
        ("postgres://h,i/d", Server::Primary),
        (
            "postgres://h:1,i:2/d?target_session_attrs=any",
            Server::Primary,
        ),
        ("postgres://h/d?target_session_attrs=any", Server::Any),
        (
            "postgres://h/d?target_session_attrs=primary",
            Server::Primary,
        ),
        (
            "postgres://h,i/d?target_session_attrs=read-write",
            Server::ReadWrite,
        ),
        (
            "host=h,i target_session_attrs=read-write",
            Server::ReadWrite,
        ),
    ];
    for (url, want) in table {
        let options = read(url);
        assert_eq!(options.server, want, "{url}");
        assert_eq!(
            options.postgres.get_target_session_attrs(),
            TargetSessionAttrs::Any,
            "{url}"
        );
    }
}

#[test]
fn only_our_words_are_taken_out() {
    let taken = |text: &str| {
        let (rest, ours) = split(text);
        let ours: Vec<String> = ours
            .iter()
            .map(|(key, value)| format!("{key}={value}"))
            .collect();
        (rest, ours.join(" "))
    };
    let table = [
        ("postgres://u:p@h/d", "postgres://u:p@h/d", ""),
        ("postgres://h/d?", "postgres://h/d?", ""),
        (
            "postgres://u:a?sslmode=disable@h/d?sslmode=require",
            "postgres://u:a?sslmode=disable@h/d",
            "sslmode=require",
        ),
        (
            "postgresql://h/d?a=b&%73slmode=x%2Fy&c=d%26&sslkey=",
            "postgresql://h/d?a=b&c=d%26",
            "sslmode=x/y sslkey=",
        ),
        (
            r"host=h  password='it\'s sslmode=x' sslmode = 'a b'  dbname=d",
            r"host=h  password='it\'s sslmode=x'    dbname=d",
            "sslmode=a b",
        ),
        (r"sslkey=/a\ b user=u", "  user=u", "sslkey=/a b"),
        ("sslmode='x user=u", "sslmode='x user=u", ""),
        ("sslmode", "sslmode", ""),
    ];
    for (text, rest, ours) in table {
        let (kept, found) = taken(text);
        let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!((words(&kept), &*found), (words(rest), ours), "{text}");
    }
}

#[test]
fn a_broken_url_is_named_without_its_password() {
    for url in [
        "postgres://u:hunter2@localhost/db?nonsense=1",
        "postgres://u:hunter2@localhost/db?sslmode=require&nonsense=1",
        "host=localhost nonsense=1 password=hunter2",
    ] {
        let error = refused(url);
        assert!(error.contains("unknown option `nonsense`"), "{error}");
        assert!(!error.contains("hunter2"), "{error}");
    }
}

#[test]
fn a_piece_of_a_password_is_not_taken_for_a_name() {
    for url in [
        "postgres://u:p@ss?hunter2=word@localhost/db",
        "postgres://u:p@%68unter2?hunter2=word@localhost/db",
        "postgres://localhost/db?user=u&password=p&hunter2=word",
        "host=localhost user=u password=my hunter2=word dbname=d",
        "user=u password=my hunter2 = word",
        "host=h password=://a@ hunter2=word",
        "password=p hunter2\n\n=",
        "password=p hunter2 word",
    ] {
        let error = refused(url);
        assert!(
            !error.contains("hunter2") && !error.contains("`w`"),
            "{error}"
        );
    }
}

#[test]
fn an_at_that_is_not_encoded_is_refused_and_what_follows_is_not_shown() {
    for url in [
        "postgres://u:hunter@2secret@127.0.0.1/d",
        "postgresql://u:hunter@2secret:x@127.0.0.1:5432/d",
        "postgres://u:a@2secret,x@h/d",
        "postgres://u:a@h/2secret@127.0.0.1/d",
        "postgres://u:a@%2F2secret@127.0.0.1/d",
        "postgres://u@2secret@h/d?sslmode=require",
        "postgres://u:a@2secret%40h/d",
        "postgres://u:a@[2secret@h]/d",
        "postgres://h:5432/d?user=u&password=a@2secret",
        "postgres://h:5432/d?password=a@2secret&user=u",
        "postgres://u:p@h/d?host=2secret@i",
        "host=2secret@h user=u",
    ] {
        let error = refused(url);
        assert!(error.contains("must be written %40"), "{url}: {error}");
        assert!(!error.contains("2secret"), "{error}");
    }
    for url in [
        "postgres://u%40v:a%40b@h/d%40e",
        "postgres://u:a/b?c@h/d",
        "postgres://u:a@h/d?application_name=x@y",
        "host=h user=u@v password=a@b dbname=d@e",
    ] {
        let options = read(url);
        assert_eq!(
            options.postgres.get_hosts(),
            [Host::Tcp("h".into())],
            "{url}"
        );
    }
}

#[test]
fn words_of_libpq_that_change_nothing_here_are_accepted() {
    let words = "gssencmode=prefer&sslcompression=0&sslsni=1&krbsrvname=postgres&gsslib=gssapi";
    let plain = read("postgres://u:p@h/d");
    assert!(read(&format!("postgres://u:p@h/d?{words}")) == plain);
    let pairs = words.replace('&', " ");
    assert!(
        read(&format!(
            "host=h port=5432 user=u password=p dbname=d {pairs}"
        )) == plain
    );
    assert!(read("postgres://u:p@h/d?gssencmode=disable") == plain);
    let table = [
        ("gssencmode=require", "gssencmode=require is not supported"),
        (
            "gssencmode=hunter2",
            "invalid value for option `gssencmode`",
        ),
        ("passfile=/hunter2", "passfile is not supported"),
        ("service=hunter2", "service is not supported"),
        ("servicefile=hunter2", "servicefile is not supported"),
        ("requirepeer=hunter2", "unknown option `requirepeer`"),
    ];
    for (word, want) in table {
        for url in [
            format!("postgres://u:p@h/d?{word}"),
            format!("host=h user=u {word}"),
        ] {
            let error = refused(&url);
            assert!(error.contains(want), "{word}: {error}");
            assert_eq!(
                error.contains("database.url_file"),
                word.contains("file=") || word.contains("service="),
                "{error}"
            );
            assert!(!error.contains("hunter2"), "{error}");
        }
    }
}

#[test]
fn what_a_string_says_of_silent_peers_is_kept() {
    let table = [
        ("", "true 10 5 3 30000"),
        ("keepalives=0", "false 10 5 3 30000"),
        ("keepalives=1 keepalives_idle=60", "true 60 5 3 30000"),
        // What the driver has where nobody says anything.
        ("keepalives_idle=7200", "true 7200 5 3 30000"),
        ("keepalives_interval=7", "true 10 7 3 30000"),
        ("keepalives_count=9", "true 10 5 9 30000"),
        ("keepalives_retries=8", "true 10 5 8 30000"),
        ("tcp_user_timeout=1500", "true 10 5 3 1500"),
        // The kernel decides.
        (
            "keepalives_idle=0 keepalives_interval=0 keepalives_count=0 tcp_user_timeout=0",
            "true 7200 - - -",
        ),
        ("keepalives_count=-1", "true 10 5 - 30000"),
    ];
    for (words, want) in table {
        for url in [
            format!("postgres://u:p@h/d?{}", words.replace(' ', "&")),
            format!("host=h user=u {words}"),
        ] {
            let postgres = read(&url).postgres;
            let or_none = |value: Option<u128>| value.map_or("-".into(), |value| value.to_string());
            let found = format!(
                "{} {} {} {} {}",
                postgres.get_keepalives(),
                postgres.get_keepalives_idle().as_secs(),
                or_none(
                    postgres
                        .get_keepalives_interval()
                        .map(|time| time.as_secs().into())
                ),
                or_none(postgres.get_keepalives_retries().map(u128::from)),
                or_none(postgres.get_tcp_user_timeout().map(Duration::as_millis)),
            );
            assert_eq!(found, want, "{url}");
        }
    }
    for word in [
        "keepalives",
        "keepalives_idle",
        "keepalives_count",
        "tcp_user_timeout",
    ] {
        let error = refused(&format!("postgres://u:p@h/d?{word}=hunter2"));
        assert!(
            error.contains(&format!("invalid value for option `{word}`")),
            "{error}"
        );
        assert!(!error.contains("hunter2"), "{error}");
    }
}
