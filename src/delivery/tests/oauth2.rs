//! Tokens: asked for once, renewed, replaced, refused.

use std::sync::Mutex;

use super::{signing::header, *};
use crate::delivery::{auth::oauth2::Config, file::tests::Directory};

/// A token server and an API, and what both were asked.
struct Scene {
    api: Server,
    tokens: Server,
    /// The `Authorization` of each request to the API.
    seen: Arc<Mutex<Vec<String>>>,
    /// Whole requests for tokens.
    asked: Arc<Mutex<Vec<String>>>,
    /// The token that the API takes; `*` for any.
    good: Arc<Mutex<String>>,
    /// What the token server says, with `#` for the token's number.
    grant: Arc<Mutex<&'static str>>,
    directory: Directory,
}

const GRANT: &str = r#"{"access_token":"t#","token_type":"Bearer","expires_in":3600}"#;

impl Scene {
    async fn new() -> Scene {
        let seen: Arc<Mutex<Vec<String>>> = Arc::default();
        let asked: Arc<Mutex<Vec<String>>> = Arc::default();
        let good = Arc::new(Mutex::new("*".to_owned()));
        let grant = Arc::new(Mutex::new(GRANT));
        let (seen_by, takes) = (seen.clone(), good.clone());
        let api = Server::start(move |mut peer| {
            let (seen, takes) = (seen_by.clone(), takes.clone());
            async move {
                while let Some(request) = peer.request().await {
                    let authorization = header(&request, "authorization");
                    let good = takes.lock().unwrap().clone();
                    let right = good == "*" || authorization == format!("Bearer {good}");
                    seen.lock().unwrap().push(authorization);
                    let status = if right { "200 OK" } else { "401 Unauthorized" };
                    let answer = format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n");
                    peer.send(answer.as_bytes()).await;
                }
            }
        })
        .await;
        let (asked_by, says) = (asked.clone(), grant.clone());
        let tokens = Server::start(move |mut peer| {
            let (asked, says) = (asked_by.clone(), says.clone());
            async move {
                while let Some(request) = peer.request().await {
                    let body = String::from_utf8(request.body).unwrap();
                    let number = {
                        let mut asked = asked.lock().unwrap();
                        asked.push(request.head + &body);
                        asked.len()
                    };
                    // Long enough for others to want one as well.
                    sleep(Duration::from_millis(50)).await;
                    let text = *says.lock().unwrap();
                    let (status, body) = text.split_once('|').unwrap_or(("200 OK", text));
                    let body = body.replace('#', &number.to_string());
                    let length = body.len();
                    let answer =
                        format!("HTTP/1.1 {status}\r\ncontent-length: {length}\r\n\r\n{body}");
                    peer.send(answer.as_bytes()).await;
                }
            }
        })
        .await;
        Scene {
            api,
            tokens,
            seen,
            asked,
            good,
            grant,
            directory: Directory::new(),
        }
    }

    fn client(&self) -> Client {
        let mut endpoint = endpoint(&self.api.url);
        endpoint.auth = auth::Config::OAuth2(Config {
            token_url: format!("{}?tenant=hidden", self.tokens.url)
                .parse()
                .unwrap(),
            client_id: "relay:1".into(),
            client_secret_file: self.directory.write("secret", "s3cret\n"),
            scope: Some("read write".into()),
            audience: Some("https://api".into()),
        });
        Client::new(&endpoint).unwrap()
    }

    fn takes(&self, token: &str) {
        token.clone_into(&mut self.good.lock().unwrap());
    }

    fn grants(&self, text: &'static str) {
        *self.grant.lock().unwrap() = text;
    }

    fn asked(&self) -> usize {
        self.asked.lock().unwrap().len()
    }

    fn seen(&self) -> Vec<String> {
        std::mem::take(&mut self.seen.lock().unwrap())
    }
}

async fn send(client: &Client) -> Outcome {
    client.attempt(&delivery(Some(b"{}"))).await
}

/// The classes of so many attempts at once.
async fn at_once(client: &Client, count: usize) -> Vec<Class> {
    let mut attempts = JoinSet::new();
    for _ in 0..count {
        let client = client.clone();
        attempts.spawn(async move { send(&client).await.class });
    }
    attempts.join_all().await
}

async fn age(client: &Client, expired: bool) {
    let Auth::Tokens(tokens) = &client.0.auth else {
        panic!("no tokens")
    };
    tokens.age(expired).await;
}

#[tokio::test]
async fn many_attempts_ask_for_one_token() {
    let scene = Scene::new().await;
    let client = scene.client();
    assert_eq!(at_once(&client, 20).await, [Class::Success; 20]);
    assert_eq!(scene.seen(), ["Bearer t1"; 20]);
    assert_eq!(scene.asked(), 1);
    let asked = scene.asked.lock().unwrap()[0].clone();
    // RFC 6749: id and secret are form-encoded, then joined.
    let pair = "\r\nauthorization: Basic cmVsYXklM0ExOnMzY3JldA==\r\n";
    assert!(asked.contains(pair), "{asked}");
    assert!(asked.contains("\r\ncontent-type: application/x-www-form-urlencoded\r\n"));
    let form = "grant_type=client_credentials&scope=read+write&audience=https%3A%2F%2Fapi";
    assert!(asked.ends_with(form), "{asked}");
}

#[tokio::test]
async fn a_token_is_renewed_before_it_expires() {
    let scene = Scene::new().await;
    let client = scene.client();
    send(&client).await;
    age(&client, false).await;
    send(&client).await;
    assert_eq!(scene.seen(), ["Bearer t1", "Bearer t2"]);

    // While it can't be, the old one is used as long as it is good, and nobody asks again at once.
    scene.grants("503 Busy|");
    age(&client, false).await;
    send(&client).await;
    send(&client).await;
    assert_eq!(scene.seen(), ["Bearer t2", "Bearer t2"]);
    assert_eq!(scene.asked(), 3);
    age(&client, true).await;
    let outcome = send(&client).await;
    assert_eq!(outcome.class, Class::Unavailable);
    assert_eq!(scene.seen(), [""; 0]);
}

#[tokio::test]
async fn a_token_that_is_refused_is_replaced_once() {
    let scene = Scene::new().await;
    let client = scene.client();
    scene.takes("t2");
    assert_eq!(at_once(&client, 10).await, [Class::Success; 10]);
    assert_eq!(scene.asked(), 2);
    let seen = scene.seen();
    let refused = seen.iter().filter(|token| *token == "Bearer t1").count();
    assert_eq!((refused, seen.len()), (10, 20));

    // Where no token is good, each attempt gives up, and the token server is left in peace.
    scene.takes("none");
    assert_eq!(at_once(&client, 10).await, [Class::Misconfigured; 10]);
    assert!(scene.asked() <= 3, "{}", scene.asked());
    let outcome = send(&client).await;
    assert_eq!(outcome.status, Some(401));
    assert_eq!(outcome.error.unwrap(), "HTTP 401 Unauthorized");
}

#[tokio::test]
async fn without_a_token_nothing_is_sent() {
    let scene = Scene::new().await;
    let from = scene.tokens.url.clone();
    let table = [
        (
            "401 No|{\"error\":\"invalid_client\"}",
            Class::Misconfigured,
            "HTTP 401 Unauthorized, invalid_client",
        ),
        (
            "400 No|nonsense",
            Class::Misconfigured,
            "HTTP 400 Bad Request",
        ),
        ("410 No|", Class::Misconfigured, "HTTP 410 Gone"),
        ("302 No|", Class::Misconfigured, "HTTP 302 Found"),
        (
            "503 No|",
            Class::Unavailable,
            "HTTP 503 Service Unavailable",
        ),
        (
            "{}",
            Class::Protocol,
            "its answer is no JSON object with an access_token",
        ),
    ];
    for (grant, class, want) in table {
        scene.grants(grant);
        let outcome = send(&scene.client()).await;
        assert_eq!((outcome.class, outcome.status), (class, None), "{grant}");
        let want = format!("no access token from {from}?…: {want}");
        assert_eq!(outcome.error.unwrap(), want);
    }
    assert_eq!(scene.seen(), [""; 0]);
    // Those that wait together fail together.
    let asked = scene.asked();
    assert_eq!(at_once(&scene.client(), 10).await, [Class::Protocol; 10]);
    assert_eq!(scene.asked(), asked + 1);

    let silent = Server::answering(b"", Then::Stall).await;
    let mut endpoint = endpoint(&scene.api.url);
    endpoint.timeout = SHORT;
    endpoint.auth = auth::Config::OAuth2(Config {
        token_url: silent.url.parse().unwrap(),
        client_id: "relay".into(),
        client_secret_file: scene.directory.write("secret", "s3cret"),
        scope: None,
        audience: None,
    });
    let outcome = send(&Client::new(&endpoint).unwrap()).await;
    assert_eq!(outcome.class, Class::Timeout);
    assert_eq!(outcome.error.unwrap(), "no access token within 300ms");
}
