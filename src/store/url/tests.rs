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
