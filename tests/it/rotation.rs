//! Credentials of the database that change while a relay runs.
use std::fs;

use outbox_relay::lab::receiver::{Receiver, Reply};
use rustix::process::Signal;

use crate::support::{
    binary::Directory,
    database, eventually,
    rows::{SOON, all_settled, count, insert, one},
};

#[tokio::test]
async fn new_credentials_in_the_file_stop_no_reload_and_serve_new_connections() {
    let database = database().await;
    let client = database.connect().await;
    let receiver = Receiver::start(|_| Reply::status(200)).unwrap();
    let directory = Directory::new();
    let role = format!("rotated_{}", database.name);
    let create = format!("create role {role} login superuser password 'new'");
    client.batch_execute(&create).await.unwrap();
    let url = |user: &str, path: &str| {
        let mut url: reqwest::Url = database.url.parse().unwrap();
        url.set_username(user).unwrap();
        url.set_password(Some("hunter2")).unwrap();
        url.set_path(path);
        url.to_string()
    };
    let file = directory.write("url", &url("postgres", &database.name));
    let text = |path: &str| {
        format!(
            "[database]\nurl_file = \"{}\"\n[relay]\nlease = \"2s\"\npoll = \"20ms\"\n\
             [[endpoints]]\nname = \"shop\"\nurl = \"{}\"\n[[routes]]\ntopic = \"**\"\nto = [\"shop\"]\n",
            file.display(),
            receiver.url(path)
        )
    };
    let config = directory.write("relay.toml", &text("/old"));
    let mut relay = directory.run(&config, "postgres://nobody@127.0.0.1:1/nowhere", "relay");
    insert(&client, "t", 1).await;
    all_settled(&client, SOON).await;

    fs::write(&file, url(&role, &database.name)).unwrap();
    fs::write(&config, text("/new")).unwrap();
    relay.signal(Signal::HUP);
    eventually("it is reloaded", SOON, async || {
        relay.log().contains("configuration reloaded")
    })
    .await;
    let sessions = format!(
        "select count(*) from pg_stat_activity where application_name = 'outbox-relay' and usename = '{role}' \
         and datname = current_database()"
    );
    assert_eq!(
        one::<i64>(&client, &sessions).await,
        0,
        "what is connected stays so"
    );
    let end = "select count(pg_terminate_backend(pid)) from pg_stat_activity \
               where application_name = 'outbox-relay' and datname = current_database()";
    assert!(one::<i64>(&client, end).await > 0);
    insert(&client, "t", 1).await;
    all_settled(&client, SOON).await;
    assert!(one::<i64>(&client, &sessions).await > 0);
    let requests = receiver.requests();
    let paths: Vec<&str> = requests.iter().map(|request| &*request.path).collect();
    assert_eq!(paths.first().zip(paths.last()), Some((&"/old", &"/new")));

    // Another database is another matter, for a reload and for a connection.
    fs::write(&file, url(&role, "postgres")).unwrap();
    relay.signal(Signal::HUP);
    eventually("it is refused", SOON, async || {
        relay
            .log()
            .contains("a change of database.url needs a restart")
    })
    .await;
    one::<i64>(&client, end).await;
    insert(&client, "t", 1).await;
    all_settled(&client, SOON).await;
    assert!(
        relay
            .log()
            .contains("it leads elsewhere now, which needs a restart")
    );
    relay.signal(Signal::TERM);
    assert_eq!(relay.end(SOON).await.code(), Some(0), "{}", relay.log());
    assert!(!relay.log().contains("hunter2"));
    assert_eq!(count(&client, "relays").await, 0);
    let drop = format!("drop role {role}");
    client.batch_execute(&drop).await.ok();
}
