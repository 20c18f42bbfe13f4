//! A relay that can be asked over HTTP.
use outbox_relay::lab::receiver::Receiver;
use reqwest::StatusCode;
use serde_json::Value;

use super::{
    binary::{Directory, Process},
    client, eventually,
    rows::SOON,
};

/// Tokens of somebody who may do everything, and of somebody who may read.
pub(crate) const OPERATOR: &str = "0123456789abcdef-operator";
pub(crate) const READER: &str = "0123456789abcdef-reader";

/// And of somebody who may send messages, by a token or signed.
pub(crate) const WRITER: &str = "0123456789abcdef-writer";
pub(crate) const SIGNER: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

/// A relay with a door at a free port.
pub(crate) struct Asked {
    pub(crate) process: Process,
    pub(crate) address: String,
    _directory: Directory,
}

impl Asked {
    /// Starts it, with more of the section `[http]` and of what follows, and waits until it listens.
    pub(crate) async fn start(receiver: &Receiver, database: &str, more: &str) -> Asked {
        let directory = Directory::new();
        let more = format!("[http]\nlisten = \"127.0.0.1:0\"\n{more}");
        let config = directory.config(&receiver.url("/"), &more);
        let process = directory.run(&config, database, "relay");
        let said = || {
            let log = process.log();
            let line = log
                .lines()
                .find(|line| line.contains("listening for HTTP"))?;
            let line: Value = serde_json::from_str(line).unwrap();
            Some(line["address"].as_str().unwrap().to_owned())
        };
        eventually("it listens", SOON, async || said().is_some()).await;
        Asked {
            address: said().unwrap(),
            process,
            _directory: directory,
        }
    }

    /// The status and the checks of an answer.
    pub(crate) async fn ask(&self, path: &str) -> (StatusCode, Value) {
        let url = format!("http://{}{path}", self.address);
        let answer = client().get(url).send().await.unwrap();
        let status = answer.status();
        let body: Value = serde_json::from_str(&answer.text().await.unwrap()).unwrap();
        assert_eq!(body["ok"], status.is_success(), "{body}");
        (status, body["checks"].clone())
    }

    /// Waits for this answer, and returns its checks.
    pub(crate) async fn becomes(&self, path: &str, status: StatusCode) -> Value {
        let what = format!("{path} answers {status}");
        eventually(&what, SOON, async || self.ask(path).await.0 == status).await;
        self.ask(path).await.1
    }
}
