#![no_main]

use std::sync::LazyLock;

use exeat::fuzzing::World;

/// Its files are read when it starts, so the folder may go.
static WORLD: LazyLock<World> = LazyLock::new(|| World::start(tempfile::tempdir().unwrap().path()));

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    WORLD.talk(data);
});
