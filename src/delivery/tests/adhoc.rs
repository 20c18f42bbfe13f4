use super::*;
#[tokio::test]
async fn adhoc() {
    let host = std::env::var("HOSTX").unwrap();
    for path in [
        "/ok",
        "/ok",
        "/big",
        "/ok",
        "/refused",
        "/ok",
        "/alwaysrefused",
        "/rst",
        "/goaway",
        "/ok",
        "/destroy",
        "/half",
        "/hang",
        "/ok",
    ] {
        let e = Endpoint {
            timeout: Duration::from_secs(2),
            ..endpoint(&format!("https://{host}:8443{path}"))
        };
        thread_local!(static C: std::cell::RefCell<Option<Client>> = const { std::cell::RefCell::new(None) });
        let mut c = C.with(|c| {
            c.borrow_mut()
                .get_or_insert_with(|| Client::new(&e).unwrap())
                .clone()
        });
        c.url = e.url.clone();
        c.timeout = e.timeout;
        let mut d = delivery(Some(b"{}"));
        if path == "/ok" {
            d.body = Some(vec![b'x'; 300_000].into());
        }
        let o = c.attempt(&d).await;
        eprintln!(
            "XX {path} {:?} {:?} {:?} {:?}",
            o.class,
            o.status,
            o.error,
            o.response.map(|r| r.chars().take(700).collect::<String>())
        );
    }
}
