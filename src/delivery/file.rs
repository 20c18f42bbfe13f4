//! Files that change while the relay runs: secrets and certificates, which somebody else renews.
//!
//! A file is looked at when an attempt needs it, at most once a second: a `stat` follows the symbolic links that
//! Kubernetes swaps, and sees another inode. What can't be read or used keeps its last good value, because a secret that
//! is being replaced must not stop deliveries; that is said once in the log, not once an attempt.
//!
//! No message holds anything of a file but its path.

use std::{
    fs::{self, File},
    io::Read,
    os::unix::fs::MetadataExt,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

/// How long a look at the files is good for.
const LOOK: Duration = Duration::from_secs(1);

/// Larger files are a mistake: a bundle of all public authorities has 250 kB.
const LARGEST: u64 = 4 << 20;

/// What is made of one or more files, made anew when one of them changes.
pub(crate) struct Watched<T> {
    /// Whose files they are, for the log.
    endpoint: String,
    paths: Vec<PathBuf>,
    make: Box<Make<T>>,
    state: Mutex<State<T>>,
}

type Make<T> = dyn Fn(&[Content]) -> Result<T, String> + Send + Sync;

/// A file and what it holds.
pub(crate) struct Content {
    pub(crate) path: PathBuf,
    /// All of it.
    pub(crate) text: String,
}

struct State<T> {
    value: Arc<T>,
    /// The files that the value was made of.
    stamps: Vec<Option<Stamp>>,
    looked: Instant,
    /// What is wrong with the files as they are now, which has been said.
    failure: Option<String>,
}

/// Tells a file from the one that was there before.
#[derive(PartialEq)]
struct Stamp {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

// === impl Watched ===

impl<T> Watched<T> {
    /// Reads the files now; the error names the file. Without a path the value is made once and stays.
    pub(crate) fn new(
        endpoint: &str,
        paths: Vec<PathBuf>,
        make: impl Fn(&[Content]) -> Result<T, String> + Send + Sync + 'static,
    ) -> Result<Watched<T>, String> {
        let stamps = stamps(&paths);
        let value = read(&paths).and_then(|contents| make(&contents))?;
        Ok(Watched {
            endpoint: endpoint.to_owned(),
            paths,
            make: Box::new(make),
            state: Mutex::new(State {
                value: Arc::new(value),
                stamps,
                looked: Instant::now(),
                failure: None,
            }),
        })
    }

    /// What the files hold now, or held when they were last good.
    pub(crate) fn current(&self) -> Arc<T> {
        self.at(Instant::now())
    }

    fn at(&self, now: Instant) -> Arc<T> {
        // A panic while it is locked leaves an older value, which is as good.
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.paths.is_empty() && now.duration_since(state.looked) >= LOOK {
            state.looked = now;
            self.look(&mut state);
        }
        Arc::clone(&state.value)
    }

    fn look(&self, state: &mut State<T>) {
        let now = stamps(&self.paths);
        if now == state.stamps {
            state.failure = None;
            return;
        }
        let made = read(&self.paths).and_then(|contents| (self.make)(&contents));
        if stamps(&self.paths) != now {
            // Somebody writes into it; a part of a secret may look like a secret.
            return;
        }
        match made {
            Ok(value) => {
                tracing::info!(endpoint = %self.endpoint, files = ?self.paths, "read files that changed");
                state.value = Arc::new(value);
                state.stamps = now;
                state.failure = None;
            }
            Err(message) => {
                if state.failure.as_ref() != Some(&message) {
                    tracing::warn!(
                        endpoint = %self.endpoint, error = %message,
                        "a file changed and can't be used: what it held before stays in use"
                    );
                    state.failure = Some(message);
                }
            }
        }
    }
}

// === impl Content ===

impl Content {
    /// A message about this file.
    pub(crate) fn wrong(&self, what: impl std::fmt::Display) -> String {
        format!("{}: {what}", self.path.display())
    }

    /// The one word that it holds.
    pub(super) fn word(&self) -> Result<&str, String> {
        let word = self.text.trim();
        if word.is_empty() {
            return Err(self.wrong("is empty"));
        }
        if word.contains(char::is_whitespace) {
            return Err(self.wrong("holds more than one word"));
        }
        Ok(word)
    }

    /// The one line that it holds, without what ends it.
    pub(super) fn line(&self) -> Result<&str, String> {
        let line = self.text.strip_suffix('\n').unwrap_or(&self.text);
        let line = line.strip_suffix('\r').unwrap_or(line);
        if line.is_empty() {
            return Err(self.wrong("is empty"));
        }
        if line.contains(['\n', '\r']) {
            return Err(self.wrong("holds more than one line"));
        }
        Ok(line)
    }
}

fn stamps(paths: &[PathBuf]) -> Vec<Option<Stamp>> {
    let stamp = |path| {
        let file = fs::metadata(path).ok()?;
        Some(Stamp {
            device: file.dev(),
            inode: file.ino(),
            size: file.size(),
            modified: (file.mtime(), file.mtime_nsec()),
            changed: (file.ctime(), file.ctime_nsec()),
        })
    };
    paths.iter().map(stamp).collect()
}

fn read(paths: &[PathBuf]) -> Result<Vec<Content>, String> {
    let one = |path: &PathBuf| {
        let mut content = Content {
            path: path.clone(),
            text: String::new(),
        };
        let read = File::open(path)
            .and_then(|file| file.take(LARGEST + 1).read_to_string(&mut content.text));
        match read {
            Ok(size) if size as u64 > LARGEST => Err(content.wrong("is too large for what it is")),
            Ok(_) => Ok(content),
            Err(error) => Err(content.wrong(format_args!("can't be read: {error}"))),
        }
    };
    paths.iter().map(one).collect()
}

#[cfg(test)]
pub(super) mod tests {
    use std::{
        os::unix::fs::symlink,
        process,
        sync::atomic::{AtomicU32, Ordering},
    };

    use super::*;

    /// A directory of one's own.
    pub(crate) struct Directory(pub(crate) PathBuf);

    impl Directory {
        pub(crate) fn new() -> Directory {
            static NEXT: AtomicU32 = AtomicU32::new(0);
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let name = format!("outbox-relay-{}-{number}", process::id());
            let path = std::env::temp_dir().join(name);
            fs::create_dir_all(&path).unwrap();
            Directory(path)
        }

        /// Writes a file as those do that replace secrets: whole, under another name, then renamed.
        pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
            let path = self.0.join(name);
            let draft = self.0.join(format!("{name}.draft"));
            fs::write(&draft, text).unwrap();
            fs::rename(draft, &path).unwrap();
            path
        }
    }

    impl Drop for Directory {
        fn drop(&mut self) {
            fs::remove_dir_all(&self.0).ok();
        }
    }

    fn number(path: PathBuf) -> Result<Watched<u32>, String> {
        Watched::new("test", vec![path], |contents| {
            let text = contents[0].text.trim();
            text.parse().map_err(|_| contents[0].wrong("is no number"))
        })
    }

    fn a_second_later(watched: &Watched<u32>) -> (u32, Option<String>) {
        let looked = watched.state.lock().unwrap().looked;
        let value = *watched.at(looked + LOOK);
        let failure = watched.state.lock().unwrap().failure.clone();
        (value, failure)
    }

    #[test]
    fn a_file_is_read_again_when_it_changed() {
        let directory = Directory::new();
        let path = directory.write("secret", "1\n");
        let watched = number(path.clone()).unwrap();
        directory.write("secret", "2");
        let looked = watched.state.lock().unwrap().looked;
        assert_eq!(*watched.at(looked + LOOK / 2), 1);
        assert_eq!(a_second_later(&watched), (2, None));
        // In its place, with the same length.
        fs::write(&path, "3").unwrap();
        assert_eq!(a_second_later(&watched), (3, None));
    }

    #[test]
    fn what_cannot_be_used_keeps_the_last_good_value() {
        let directory = Directory::new();
        let path = directory.write("secret", "1");
        let watched = number(path.clone()).unwrap();
        let named = |what: &str| Some(format!("{}: {what}", path.display()));
        directory.write("secret", "s3cret");
        assert_eq!(a_second_later(&watched), (1, named("is no number")));
        fs::remove_file(&path).unwrap();
        let (value, failure) = a_second_later(&watched);
        assert_eq!(value, 1);
        assert!(failure.unwrap().contains("can't be read: No such file"));
        directory.write("secret", "4");
        assert_eq!(a_second_later(&watched), (4, None));
    }

    #[test]
    fn a_symbolic_link_that_is_swapped_is_a_change() {
        let directory = Directory::new();
        for name in ["1", "2"] {
            fs::create_dir(directory.0.join(name)).unwrap();
            fs::write(directory.0.join(name).join("secret"), name).unwrap();
        }
        let link = directory.0.join("..data");
        symlink("1", &link).unwrap();
        let path = directory.0.join("secret");
        symlink("..data/secret", &path).unwrap();
        let watched = number(path).unwrap();
        symlink("2", directory.0.join("..new")).unwrap();
        fs::rename(directory.0.join("..new"), &link).unwrap();
        assert_eq!(a_second_later(&watched), (2, None));
    }

    #[test]
    fn what_is_wrong_at_start_names_the_file() {
        let directory = Directory::new();
        let error = number(directory.0.join("none")).err().unwrap();
        assert!(error.contains("/none: can't be read: "), "{error}");
        let error = number(directory.write("secret", "s3cret")).err().unwrap();
        assert!(error.ends_with("/secret: is no number"), "{error}");
        let large = "1".repeat(usize::try_from(LARGEST).unwrap() + 1);
        let error = number(directory.write("large", &large)).err().unwrap();
        assert!(error.ends_with("/large: is too large for what it is"));
    }
}
