//! Where a PostgreSQL server is installed, on the systems that we know.
//!
//! It is seldom on the PATH: Debian keeps each version in a directory of its own and puts only the clients into
//! /usr/bin. So a directory counts when `initdb`, `postgres` and `pg_ctl` are in it together, after symbolic links
//! (one link to `postgres` in /usr/local/bin leads to its siblings).
use std::{
    cmp::Reverse,
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

/// What a directory must hold to be of use.
const PROGRAMS: [&str; 3] = ["initdb", "postgres", "pg_ctl"];

/// Older servers are passed over where the directory tells the version.
const OLDEST: u32 = 14;

/// Directories with a version in their name: what comes before it, and what follows.
const VERSIONED: [(&str, &str, &str); 5] = [
    ("/usr/lib/postgresql", "", "bin"),
    ("/usr", "pgsql-", "bin"),
    ("/opt/homebrew/opt", "postgresql@", "bin"),
    ("/usr/local/opt", "postgresql@", "bin"),
    ("/usr/libexec", "postgresql", ""),
];

/// The first directory with a server: on the PATH, where `pg_config` says, or where packages put it, newest first.
pub(super) fn find() -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path)
        .find_map(|dir| server_in(&dir))
        .or_else(|| server_in(&told_by_pg_config()?))
        .or_else(|| VERSIONED.iter().find_map(newest))
        .or_else(|| server_in(Path::new("/usr/local/pgsql/bin")))
}

/// The directory that `dir/postgres` really is in, if its siblings are there.
pub(super) fn server_in(dir: &Path) -> Option<PathBuf> {
    let postgres = fs::canonicalize(dir.join("postgres")).ok()?;
    let dir = postgres.parent()?;
    let complete = PROGRAMS.iter().all(|program| dir.join(program).is_file());
    complete.then(|| dir.to_owned())
}

fn told_by_pg_config() -> Option<PathBuf> {
    let output = Command::new("pg_config").arg("--bindir").output().ok()?;
    let dir = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| dir.trim().into())
}

fn newest(&(parent, prefix, suffix): &(&str, &str, &str)) -> Option<PathBuf> {
    let mut versions: Vec<(Reverse<u32>, PathBuf)> = fs::read_dir(parent)
        .ok()?
        .filter_map(|entry| {
            let path = entry.ok()?.path();
            let version = path.file_name()?.to_str()?.strip_prefix(prefix)?;
            Some((Reverse(version.parse().ok()?), path))
        })
        .filter(|(version, _)| version.0 >= OLDEST)
        .collect();
    versions.sort();
    versions
        .iter()
        .find_map(|(_, dir)| server_in(&dir.join(suffix)))
}
