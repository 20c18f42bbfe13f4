//! What a shell and `man` want to know of this command line, made from the same description that reads it.

use std::path::Path;

use clap::{Command, CommandFactory};
use clap_complete::Shell;
use clap_mangen::Man;

use super::{Cli, Failure, written};

const NAME: &str = "outbox-relay";

/// Prints the script by which a shell completes this command line.
pub(super) fn completions(shell: Shell) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), NAME, &mut script);
    if shell == Shell::Bash {
        // clap_complete 4.6.12 spells a name with a hyphen in two ways, and then knows no flag of any subcommand.
        let text =
            String::from_utf8_lossy(&script).replace("outbox__subcmd__relay", "outbox__relay");
        script = text.into_bytes();
    }
    // As it is: a script may hold tabs, which an answer of the database may not.
    written(&script);
    Ok(())
}

/// Prints the page of the whole; into a directory, it and a page of each subcommand.
pub(super) fn man(directory: Option<&Path>) -> Result<(), Failure> {
    let Some(directory) = directory else {
        let mut page = Vec::new();
        let rendered = Man::new(Cli::command()).render(&mut page);
        rendered.map_err(|error| Failure::Other(error.to_string()))?;
        written(&page);
        return Ok(());
    };
    let wrote = std::fs::create_dir_all(directory)
        .and_then(|()| clap_mangen::generate_to(without_help(), directory));
    wrote.map_err(|error| Failure::Other(format!("{}: {error}", directory.display())))?;
    say!("{}: written", directory.display());
    Ok(())
}

/// The page of `help` would say what all others do.
fn without_help() -> Command {
    Cli::command().disable_help_subcommand(true)
}
