//! Real parts to try things with: a throwaway PostgreSQL, and an HTTP receiver that misbehaves on script.
//!
//! The demo and the integration tests use the same ones, because a stand-in for either would hide what matters here:
//! when a row lock is given back, what a client sees of a connection that breaks, how a database comes back after
//! `kill -9`. Nothing on the delivery path imports this module.
use std::{
    io,
    net::{Ipv4Addr, TcpListener},
    process,
    sync::atomic::{AtomicU32, Ordering},
};

pub mod cluster;
pub mod receiver;

/// Listens on a free port of 127.0.0.1 that is safe to come back to.
///
/// Not on port 0: that gives a port from the range that outgoing connections take theirs from. While the listener of
/// such a port is down, a client that tries again and again may get it as its *own* port, be connected to itself, and
/// keep the server from coming back. So these lie below that range (32768 on Linux, 49152 elsewhere).
fn listen() -> io::Result<TcpListener> {
    const FIRST: u32 = 15_000;
    const PORTS: u32 = 17_000;
    static NEXT: AtomicU32 = AtomicU32::new(0);

    let mut refused = io::Error::from(io::ErrorKind::AddrInUse);
    for _ in 0..1_000 {
        // Tests are processes with neighbouring ids: the factor starts each of them somewhere else.
        let step = NEXT.fetch_add(1, Ordering::Relaxed);
        let offset = process::id().wrapping_mul(7_919).wrapping_add(step) % PORTS;
        let port = u16::try_from(FIRST + offset).expect("the range ends below 32768");
        match TcpListener::bind((Ipv4Addr::LOCALHOST, port)) {
            Ok(listener) => return Ok(listener),
            Err(error) => refused = error,
        }
    }
    Err(refused)
}
