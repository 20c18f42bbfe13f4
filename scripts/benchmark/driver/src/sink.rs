//! The receiver of all contenders: as little work per request as can be, on one thread.
//!
//! A message names itself by `"n":<number>` in its body. What the path says is what becomes of the request: `/` is answered
//! at once, `/d/5` after 5 ms, `/hang` never, `/fail/15` with 503 where the number ends in 00 to 14 and it is the first try.
//! `/-/…` is for the driver: `reset/<capacity>`, `stats`, `arrivals` (the first arrival of each number, nanoseconds since
//! 1970, little-endian, 0 = not yet).
use std::{
    cell::RefCell,
    io::Write as _,
    rc::Rc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    task::LocalSet,
    time::sleep,
};

use crate::Failure;

const OK: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
const BUSY: &[u8] = b"HTTP/1.1 503 Busy\r\ncontent-length: 0\r\n\r\n";

#[derive(Default)]
struct Seen {
    arrivals: Vec<u64>,
    count: u64,
    unique: u64,
    duplicates: u64,
    last: u64,
    in_flight: u64,
}

/// Where a request is in the buffer, and what it asks for.
struct Request {
    path: std::ops::Range<usize>,
    body: std::ops::Range<usize>,
}

pub(crate) fn run() -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    LocalSet::new().block_on(&runtime, async {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        println!("{}", listener.local_addr()?.port());
        std::io::stdout().flush()?;
        let seen = Rc::new(RefCell::new(Seen::default()));
        loop {
            let (stream, _) = listener.accept().await?;
            stream.set_nodelay(true)?;
            let seen = Rc::clone(&seen);
            tokio::task::spawn_local(async move {
                // Whoever leaves in the middle of a request is none of our business.
                serve(stream, &seen).await.ok();
            });
        }
    })
}

/// Nanoseconds since 1970.
pub(crate) fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| u64::try_from(since.as_nanos()).unwrap_or(0))
}

async fn serve(mut stream: TcpStream, seen: &RefCell<Seen>) -> Result<(), Failure> {
    let mut buffer = Vec::with_capacity(16 * 1024);
    loop {
        let request = loop {
            if let Some(request) = parse(&buffer)? {
                break request;
            }
            if stream.read_buf(&mut buffer).await? == 0 {
                return Ok(());
            }
        };
        let path = String::from_utf8_lossy(&buffer[request.path.clone()]).into_owned();
        if let Some(control) = path.strip_prefix("/-/") {
            let answer = seen.borrow_mut().control(control);
            let head = format!(
                "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n",
                answer.len()
            );
            stream.write_all(head.as_bytes()).await?;
            stream.write_all(&answer).await?;
        } else {
            let (number, first) = seen.borrow_mut().arrived(&buffer[request.body.clone()]);
            seen.borrow_mut().in_flight += 1;
            let answer = answer(&path, number, first, &mut stream).await;
            seen.borrow_mut().in_flight -= 1;
            answer?;
        }
        buffer.drain(..request.body.end);
    }
}

async fn answer(
    path: &str,
    number: u64,
    first: bool,
    stream: &mut TcpStream,
) -> Result<(), Failure> {
    let mut answer = OK;
    if let Some(delay) = path.strip_prefix("/d/") {
        sleep(Duration::from_millis(delay.parse()?)).await;
    } else if let Some(share) = path.strip_prefix("/fail/") {
        if first && number % 100 < share.parse()? {
            answer = BUSY;
        }
    } else if path == "/hang" {
        // Until the client has had enough.
        while stream.read(&mut [0; 1024]).await? > 0 {}
        return Err("hung up".into());
    }
    stream.write_all(answer).await?;
    Ok(())
}

/// `None` until the request is whole.
fn parse(buffer: &[u8]) -> Result<Option<Request>, Failure> {
    let Some(head) = buffer.windows(4).position(|four| four == b"\r\n\r\n") else {
        return Ok(None);
    };
    let mut lines = buffer[..head].split(|byte| *byte == b'\n');
    let line = lines.next().unwrap_or_default();
    let start = 1 + line
        .iter()
        .position(|byte| *byte == b' ')
        .ok_or("no path")?;
    let length = line[start..]
        .iter()
        .position(|byte| *byte == b' ')
        .ok_or("no version")?;
    let mut body = 0;
    for line in lines {
        const NAME: &[u8] = b"content-length:";
        if line.len() > NAME.len() && line[..NAME.len()].eq_ignore_ascii_case(NAME) {
            body = std::str::from_utf8(&line[NAME.len()..])?.trim().parse()?;
        }
    }
    let begin = head + 4;
    Ok((buffer.len() >= begin + body).then_some(Request {
        path: start..start + length,
        body: begin..begin + body,
    }))
}

// === impl Seen ===

impl Seen {
    /// Its number, and whether it came for the first time.
    fn arrived(&mut self, body: &[u8]) -> (u64, bool) {
        self.count += 1;
        self.last = now();
        let number = number(body);
        let Some(place) = number.and_then(|n| self.arrivals.get_mut(usize::try_from(n).ok()?))
        else {
            return (u64::MAX, true);
        };
        let first = *place == 0;
        if first {
            *place = self.last;
            self.unique += 1;
        } else {
            self.duplicates += 1;
        }
        (number.unwrap_or(u64::MAX), first)
    }

    fn control(&mut self, command: &str) -> Vec<u8> {
        if let Some(capacity) = command.strip_prefix("reset/") {
            let in_flight = self.in_flight;
            *self = Seen {
                arrivals: vec![0; capacity.parse().unwrap_or(0)],
                in_flight,
                ..Seen::default()
            };
            return Vec::new();
        }
        if command == "arrivals" {
            return self
                .arrivals
                .iter()
                .flat_map(|at| at.to_le_bytes())
                .collect();
        }
        let (count, unique, duplicates) = (self.count, self.unique, self.duplicates);
        let numbers = [count, unique, duplicates, self.last, self.in_flight, now()];
        numbers
            .map(|number| number.to_string())
            .join(" ")
            .into_bytes()
    }
}

fn number(body: &[u8]) -> Option<u64> {
    const NAME: &[u8] = b"\"n\":";
    let at = body.windows(NAME.len()).position(|window| window == NAME)? + NAME.len();
    let digits = body[at..].iter().copied().skip_while(|byte| *byte == b' ');
    let mut number = None;
    for digit in digits.take_while(u8::is_ascii_digit) {
        number = Some(number.unwrap_or(0) * 10 + u64::from(digit - b'0'));
    }
    number
}
