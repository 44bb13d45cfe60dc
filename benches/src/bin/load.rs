//! The side-by-side load bench; see [`exeat_benches::load`].

use std::process::ExitCode;

fn main() -> ExitCode {
    exeat_benches::load::main()
}
