//! A cluster's directory, and how its programs are run in it: as whom, where, and what remains when their owner dies.
use std::{
    env, fs, io,
    os::unix::fs::{DirBuilderExt, chown},
    path::PathBuf,
    process::{self, Stdio},
    thread,
};

use rustix::process::geteuid;
use tokio::process::{Child, Command};

use super::{Error, LOOK, system};

/// The longest socket path that every system takes (macOS: 104 bytes with its end, Linux: 108).
const SOCKET_PATH: usize = 103;

/// Waits for the end of its input, then stops the server (`$1/pg_ctl`) and removes the directory (`$2`).
const WATCHDOG: &str = r#"
    trap '' HUP INT
    read -r _
    "$1/pg_ctl" stop -D "$2/data" -m immediate -t 10
    rm -rf "$2""#;

/// What all processes of a cluster have in common. Dropping it removes the directory.
#[derive(Debug)]
pub(super) struct Home {
    bin: PathBuf,
    pub(super) dir: PathBuf,
    /// Whom to run as, where we are root.
    user: Option<User>,
}

#[derive(Clone, Copy, Debug)]
struct User {
    uid: u32,
    gid: u32,
}

// === impl Home ===

impl Home {
    pub(super) async fn new(bin: PathBuf) -> Result<Home, Error> {
        let user = if geteuid().is_root() {
            Some(User::find().await?)
        } else {
            None
        };
        let dir = private_dir().map_err(system("make a temporary directory"))?;
        let home = Home { bin, dir, user };
        if let Some(User { uid, gid }) = user {
            chown(&home.dir, Some(uid), Some(gid)).map_err(system("give a directory away"))?;
        }
        if home.dir.join(".s.PGSQL.65535").as_os_str().len() > SOCKET_PATH {
            return Err(Error::LongPath(home.dir.clone()));
        }
        Ok(home)
    }

    pub(super) fn data(&self) -> PathBuf {
        self.dir.join("data")
    }

    /// A program of the server's, in the directory, as the right user, in a process group of its own.
    pub(super) fn command(&self, program: &str) -> Command {
        self.prepare(Command::new(self.bin.join(program)))
    }

    fn prepare(&self, mut command: Command) -> Command {
        // We look for words in the messages.
        command.env("LC_ALL", "C");
        command.current_dir(&self.dir).process_group(0);
        if let Some(User { uid, gid }) = self.user {
            // With a uid, the standard library gives up root's supplementary groups, too.
            command.uid(uid).gid(gid);
        }
        command
    }

    pub(super) async fn initdb(&self) -> Result<(), Error> {
        let output = self
            .command("initdb")
            .arg("-D")
            .arg(self.data())
            .args(["-U", "postgres", "-A", "trust", "-E", "UTF8"])
            .args(["--locale=C", "--no-sync"])
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output()
            .await
            .map_err(system(&format!("run {}/initdb", self.bin.display())))?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            return Err(Error::Initdb(said.trim().to_owned()));
        }
        Ok(())
    }

    /// Another directory with a copy of the data, which no server may use meanwhile.
    pub(super) async fn copy(&self) -> Result<Home, Error> {
        let copy = Home::new(self.bin.clone()).await?;
        let done = copy
            .prepare(Command::new("cp"))
            .arg("-Rp")
            .args([self.data(), copy.data()])
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .status()
            .await
            .and_then(|status| match status.success() {
                true => Ok(()),
                false => Err(io::Error::other(format!("cp ended with {status}"))),
            });
        done.map_err(system("copy a data directory"))?;
        Ok(copy)
    }

    pub(super) fn watchdog(&self) -> Result<Child, Error> {
        self.prepare(Command::new("sh"))
            .args(["-c", WATCHDOG, "outbox-relay-lab"])
            .args([&self.bin, &self.dir])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .map_err(system("run sh"))
    }
}

impl Drop for Home {
    /// More than once: after a hard kill some backend may still be writing.
    fn drop(&mut self) {
        for _ in 0..50 {
            match fs::remove_dir_all(&self.dir) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => thread::sleep(LOOK),
                Ok(()) | Err(_) => return,
            }
        }
    }
}

// === impl User ===

impl User {
    /// Asks `id`, because users need not be in /etc/passwd.
    async fn find() -> Result<User, Error> {
        for name in ["postgres", "nobody"] {
            if let (Some(uid), Some(gid)) = (id("-u", name).await, id("-g", name).await) {
                return Ok(User { uid, gid });
            }
        }
        Err(Error::NoUser)
    }
}

async fn id(which: &str, name: &str) -> Option<u32> {
    let output = Command::new("id").args([which, name]).output().await.ok()?;
    String::from_utf8(output.stdout).ok()?.trim().parse().ok()
}

/// `mkdir` fails if the name is taken, even by a link: so what we get is ours alone.
fn private_dir() -> io::Result<PathBuf> {
    let parent = fs::canonicalize(env::temp_dir())?;
    let mut number = 0;
    loop {
        let dir = parent.join(format!("outbox-relay-lab-{}-{number}", process::id()));
        match fs::DirBuilder::new().mode(0o700).create(&dir) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => number += 1,
            made => return made.map(|()| dir),
        }
    }
}
