//! Demo.
use super::Failure;

/// The demo.
#[derive(Debug, clap::Args)]
pub struct Demo {
    /// How many messages the app commits.
    #[arg(long, default_value_t = 2000)]
    pub messages: u32,
}

pub(super) async fn run(_: Demo) -> Result<(), Failure> {
    Err(Failure::Other("not yet".into()))
}
