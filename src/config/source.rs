//! Where a configuration comes from, so that it can be read again.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use super::{Config, Problem, Problems, environment, host, parse};

/// A file, and the environment as it was at the start.
pub struct Source {
    path: PathBuf,
    environment: BTreeMap<String, String>,
    host: String,
}

impl Source {
    /// The file at `path`, which is not read yet, and the environment as it is now.
    ///
    /// # Errors
    ///
    /// Variables that can't be read.
    pub fn new(path: &Path) -> Result<Source, Problems> {
        let file = path.display().to_string();
        let environment = environment().map_err(|list| Problems::new(&file, list))?;
        Ok(Source {
            path: path.into(),
            host: host(&environment),
            environment,
        })
    }

    /// The text of the file as it is now.
    ///
    /// # Errors
    ///
    /// Why it can't be read.
    pub fn read(&self) -> Result<String, Problems> {
        fs::read_to_string(&self.path).map_err(|error| {
            let problem = Problem::new("", format!("can't be read: {error}"));
            Problems::new(&self.file(), vec![problem])
        })
    }

    /// What a text of the file means.
    ///
    /// # Errors
    ///
    /// Everything that is wrong with it and the overrides.
    pub fn parse(&self, text: &str) -> Result<Config, Problems> {
        parse(&self.file(), text, &self.environment, &self.host)
    }

    fn file(&self) -> String {
        self.path.display().to_string()
    }
}
