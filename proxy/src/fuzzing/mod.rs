//! Properties that hold for any input, as functions of bytes: what the fuzz targets of `tests/fuzz` run.
//!
//! A property panics where it does not hold. It compares what the product makes of an input with something that is
//! written another way: the same input in other pieces, a second reading of what was printed, another library, a naive
//! version of the same rule. The seeds in `tests/fuzz/corpus` are run through them by the ordinary tests too.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a property fails by panicking"
)]

mod events;
mod files;
mod framing;
mod gate;
mod openings;
mod rules;

pub use events::Decisions;
pub use files::{config, manifest};
pub use framing::{chunked, head};
pub use gate::World;
pub use openings::{hello, proxy_header, socks};
pub use rules::{path, pattern, target};

/// The lengths of the pieces that an input is cut into: they come from `seed` and go on without end.
fn pieces(seed: u8) -> impl Iterator<Item = usize> {
    let mut state = u32::from(seed) | 0x100;
    std::iter::from_fn(move || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        // Mostly a few bytes, sometimes many.
        let length = state >> 24;
        Some(if length < 200 { length as usize % 7 + 1 } else { length as usize * 4 })
    })
}

/// The ends of the pieces of `length` bytes, the last of them `length`.
fn ends(length: usize, seed: u8) -> impl Iterator<Item = usize> {
    let mut at = 0;
    pieces(seed).map_while(move |piece| {
        let done = at == length;
        at = length.min(at + piece);
        (!done).then_some(at)
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    /// Runs every seed of a target.
    fn seeds(target: &str, property: impl Fn(&[u8])) {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fuzz/corpus").join(target);
        let mut count = 0;
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let bytes = std::fs::read(&path).unwrap();
            let held = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| property(&bytes)));
            assert!(held.is_ok(), "{}", path.display());
            count += 1;
        }
        assert!(count > 2, "{} has {count} seeds", folder.display());
    }

    #[test]
    fn every_property_holds_for_its_seeds() {
        seeds("pattern", pattern);
        seeds("path", path);
        seeds("target", target);
        seeds("hello", hello);
        seeds("socks", socks);
        seeds("proxy_header", proxy_header);
        seeds("head", head);
        seeds("chunked", chunked);
        seeds("config", config);
        seeds("manifest", manifest);
    }

    #[test]
    fn what_goes_out_is_permitted_whatever_came_in() {
        let folder = tempfile::tempdir().unwrap();
        let world = World::start(folder.path());
        let sent = std::cell::Cell::new(0);
        seeds("gate", |data| sent.set(sent.get() + world.talk(data)));
        assert!(sent.get() > 5, "{} requests of the seeds reached the server", sent.get());
    }

    #[test]
    fn an_input_is_cut_into_all_of_it() {
        for seed in 0..=255 {
            let ends: Vec<_> = ends(1000, seed).collect();
            assert!(ends.is_sorted_by(|one, next| one < next) && ends.last() == Some(&1000), "{ends:?}");
        }
        assert_eq!(ends(0, 7).count(), 0);
    }
}
