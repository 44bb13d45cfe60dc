//! The `exeat` command.

use std::process::ExitCode;

use exeat::cli::{self, Ended};

fn main() -> ExitCode {
    match cli::run(std::env::args_os()) {
        Ended::Clean => ExitCode::SUCCESS,
        Ended::Found => ExitCode::from(1),
        Ended::Unusable => ExitCode::from(2),
        Ended::Command(code) => ExitCode::from(code),
    }
}
