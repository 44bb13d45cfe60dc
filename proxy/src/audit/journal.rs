//! The journal: events, numbered and in order.
//!
//! An event is made into its line once: what happened outside the lock, and under it the number, the time and what
//! passes it on. So the lines of a session stand in the order of their numbers wherever they go, and no number is left
//! out: an event that could not be kept never had one, and the next that can be is preceded by one that says how many
//! are missing.
//!
//! A line is written under the lock, by whoever has something to write: into the system's memory that takes a
//! microsecond, less than waking somebody else up would. What may wait, because nothing depends on it, is written
//! together with what comes next, or when [`Journal::keep_up`] looks after it. Waiting for the disk is what the
//! [`Syncer`] is for.

use std::cell::RefCell;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use super::clock::Clock;
use super::event::Kind;
use super::file::EventFile;
use super::json::{Object, decimal, escape, name};
use super::sync::{Synced, Syncer};
use super::{Event, Feed};
use crate::config::{Audit as AuditConfig, OnFull};
use crate::metrics::{EventResult, Metrics};

/// How long what may wait does.
const WAIT: Duration = Duration::from_millis(20);
/// How long until it is tried again, when it cannot be written.
const TRY_AGAIN: Duration = Duration::from_secs(1);
/// How many bytes may wait.
const WAITING: usize = 16 << 10;

/// One session's events.
#[derive(Debug)]
pub(crate) struct Sequence {
    id: Box<str>,
    /// What each of its lines begins with, up to the number.
    head: Box<[u8]>,
    /// What stands between the number and the number.
    middle: Box<[u8]>,
    began: Instant,
    /// The number of the last event; they count from 1. Written under the journal's lock.
    last: AtomicU64,
    /// How many events are missing since. Likewise.
    missing: AtomicU64,
}

impl Sequence {
    /// The events of a session that begins, under the name that it alone has.
    pub(crate) fn begin(id: &str) -> Self {
        let (mut head, mut middle) = (Vec::new(), Vec::new());
        let mut object = Object::begin(&mut head);
        object.plain(name!("schema"), "exeat.event");
        object.plain(name!("version"), "1.0");
        let out = object.open(name!("event_id"));
        escape(out, id);
        out.push(b'-');
        middle.push(b'"');
        let mut object = Object::go_on(&mut middle);
        object.text(name!("session_id"), id);
        object.name(name!("sequence"));
        Self {
            id: id.into(),
            head: head.into(),
            middle: middle.into(),
            began: Instant::now(),
            last: AtomicU64::new(0),
            missing: AtomicU64::new(0),
        }
    }

    /// Its id, the `session_id` of its events.
    pub(crate) fn id(&self) -> &str {
        &self.id
    }
}

/// The number of an event in its session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EventId(pub(super) u64);

/// What became of an event.
#[derive(Debug)]
pub(super) enum Written {
    /// It is where it is kept, or nothing is kept.
    Kept(EventId),
    /// It is in the file, and will be synced.
    Syncing(EventId, Synced),
    /// It is missing, which will be written down.
    Missing,
    /// It could not be written and nothing may happen without it. It does not count as missing, since nothing does.
    Refused,
}

/// Whether something is about to happen that may not without its event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Need {
    /// It is.
    Before,
    /// It has happened.
    After,
    /// It has happened, and whoever reads of it can wait for a moment.
    Later,
}

/// Numbers events and passes them on.
#[derive(Debug)]
pub(crate) struct Journal {
    state: Mutex<State>,
    feed: Feed,
    metrics: Arc<Metrics>,
    on_full: OnFull,
    /// Whether there is a file.
    keeps: bool,
    syncer: Option<Syncer>,
    /// Something waits to be written, and nobody looks after it.
    waits: Notify,
}

/// A journal whose file cannot be opened.
#[derive(Debug, thiserror::Error)]
#[error("[audit] events: cannot write {}: {cause}", path.display())]
pub(crate) struct JournalError {
    path: PathBuf,
    cause: io::Error,
}

#[derive(Debug, Default)]
struct State {
    line: Vec<u8>,
    clock: Clock,
    file: Option<EventFile>,
    /// Whole lines that have their number and are to be written first.
    waiting: Vec<u8>,
    /// How many they are.
    lines: u64,
    /// Whether somebody looks after what waits.
    attended: bool,
    /// Whether the last line could not be written.
    failing: bool,
}

thread_local! {
    /// What happened, as JSON; kept for its capacity.
    static BODY: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

impl Journal {
    /// A journal that keeps nothing but the latest.
    pub(crate) fn fleeting(metrics: Arc<Metrics>) -> Self {
        Self {
            state: Mutex::default(),
            feed: Feed::default(),
            metrics,
            on_full: OnFull::Drop,
            keeps: false,
            syncer: None,
            waits: Notify::new(),
        }
    }

    /// A journal that keeps what the config says.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(crate) fn open(config: &AuditConfig, metrics: Arc<Metrics>) -> Result<Self, JournalError> {
        let mut journal = Self::fleeting(metrics);
        if let Some(path) = &config.events {
            let failed = |cause| JournalError { path: path.clone(), cause };
            let file = EventFile::open(path, config).map_err(failed)?;
            if config.durable {
                let metrics = Arc::clone(&journal.metrics);
                let syncer = Syncer::start(move |error| {
                    metrics.count_events(EventResult::Failed, 1);
                    tracing::error!(%error, "the events cannot be synced; the requests that wait for it are refused");
                });
                journal.syncer = Some(syncer.map_err(failed)?);
            }
            journal.state().file = Some(file);
            (journal.keeps, journal.on_full) = (true, config.on_full);
        }
        Ok(journal)
    }

    /// The latest events, and those to come.
    pub(crate) const fn feed(&self) -> &Feed {
        &self.feed
    }

    /// Whether somebody wants to know how things end: there is a file, or a listener.
    pub(super) fn wants_ends(&self) -> bool {
        self.keeps || self.feed.has_listeners()
    }

    /// Writes what waits, a moment after it has begun to; for as long as it is polled.
    pub(crate) async fn keep_up(&self) {
        loop {
            self.waits.notified().await;
            let mut pause = WAIT;
            loop {
                tokio::time::sleep(pause).await;
                let mut state = self.state();
                state.attended = !state.waiting.is_empty();
                if !state.attended {
                    break;
                }
                pause = if self.write_waiting(&mut state) { WAIT } else { TRY_AGAIN };
            }
        }
    }

    /// Writes what waits; says whether it could.
    fn write_waiting(&self, state: &mut State) -> bool {
        match state.append(&[]) {
            Ok(written) => {
                self.written(state, written);
                true
            }
            Err(error) => {
                self.failing(state, &error);
                false
            }
        }
    }

    /// Opens the file anew if it was renamed or removed.
    pub(crate) fn reopen(&self) {
        let mut state = self.state();
        // What there is belongs to the file that there was.
        self.write_waiting(&mut state);
        if let Some(file) = &mut state.file
            && let Err(error) = file.reopen()
        {
            tracing::error!(%error, "the file of events cannot be opened anew; the one that is open stays in use");
        }
    }

    /// Takes an event down that happened just `now`.
    pub(super) fn write(&self, sequence: &Sequence, event: &Event<'_>, need: Need, now: Instant) -> Written {
        BODY.with_borrow_mut(|body| {
            event.write(body);
            let mut state = self.state();
            let kept = self
                .fill_gap(&mut state, sequence, now)
                .and_then(|()| self.keep(&mut state, sequence, body, need, now));
            let id = match kept {
                Ok(id) => id,
                Err(error) => return self.lost(&mut state, sequence, need, &error),
            };
            match (&self.syncer, &state.file) {
                (Some(syncer), Some(file)) if need == Need::Before => Written::Syncing(id, syncer.wait(file.handle())),
                (Some(syncer), Some(file)) => {
                    syncer.due(file.handle());
                    Written::Kept(id)
                }
                _ => Written::Kept(id),
            }
        })
    }

    /// Says in front of the next event how many are missing.
    fn fill_gap(&self, state: &mut State, sequence: &Sequence, now: Instant) -> io::Result<()> {
        let missing = sequence.missing.load(Ordering::Relaxed);
        if missing == 0 {
            return Ok(());
        }
        let mut body = Vec::new();
        Event { dropped: Some(missing), ..Event::of(Kind::Gap) }.write(&mut body);
        self.keep(state, sequence, &body, Need::After, now)?;
        sequence.missing.store(0, Ordering::Relaxed);
        Ok(())
    }

    /// Gives an event its number, writes it or has it wait, and passes it on.
    fn keep(
        &self,
        state: &mut State,
        sequence: &Sequence,
        body: &[u8],
        need: Need,
        now: Instant,
    ) -> io::Result<EventId> {
        let number = sequence.last.load(Ordering::Relaxed) + 1;
        let mut line = std::mem::take(&mut state.line);
        state.make_line(&mut line, sequence, number, body, now);
        // What is synced is written for each, since the next sync is on its way.
        let kept = if need == Need::Later && self.syncer.is_none() && state.has_wait(&line) {
            if !std::mem::replace(&mut state.attended, true) {
                self.waits.notify_one();
            }
            Ok(())
        } else {
            state.append(&line).map(|written| self.written(state, written))
        };
        if kept.is_ok() {
            sequence.last.store(number, Ordering::Relaxed);
            self.feed.push(&line);
        }
        state.line = line;
        kept.map(|()| EventId(number))
    }

    fn written(&self, state: &mut State, lines: u64) {
        self.metrics.count_events(EventResult::Written, lines);
        if lines > 0 && std::mem::take(&mut state.failing) {
            tracing::info!("events can be written again");
        }
    }

    fn failing(&self, state: &mut State, error: &io::Error) {
        if !std::mem::replace(&mut state.failing, true) {
            let means = match self.on_full {
                OnFull::Block => "requests are refused until they can be",
                OnFull::Drop => "requests go out without",
            };
            tracing::error!(%error, "events cannot be written; {means}");
        }
    }

    fn lost(&self, state: &mut State, sequence: &Sequence, need: Need, error: &io::Error) -> Written {
        self.failing(state, error);
        if self.on_full == OnFull::Block && need == Need::Before {
            self.metrics.count_events(EventResult::Failed, 1);
            return Written::Refused;
        }
        self.metrics.count_events(EventResult::Dropped, 1);
        sequence.missing.fetch_add(1, Ordering::Relaxed);
        Written::Missing
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        let mut state = self.state();
        self.write_waiting(&mut state);
    }
}

impl State {
    /// Makes the line of an event.
    fn make_line(&mut self, line: &mut Vec<u8>, sequence: &Sequence, number: u64, body: &[u8], now: Instant) {
        let Sequence { head, middle, began, .. } = sequence;
        let offset = u64::try_from(now.saturating_duration_since(*began).as_millis()).unwrap_or(u64::MAX);
        line.clear();
        line.extend_from_slice(head);
        decimal(line, number);
        line.extend_from_slice(middle);
        decimal(line, number);
        let mut object = Object::go_on(line);
        object.quoted(name!("timestamp"), |out| self.clock.write_now(out));
        object.number(name!("monotonic_offset_ms"), offset);
        // The rest of the object is there, and its end.
        line.push(b',');
        line.extend_from_slice(body.get(1..).unwrap_or_default());
        line.push(b'\n');
    }

    /// Has a line wait, if there is a file and room.
    fn has_wait(&mut self, line: &[u8]) -> bool {
        let room = self.file.is_some() && self.waiting.len() + line.len() <= WAITING;
        if room {
            self.waiting.extend_from_slice(line);
            self.lines += 1;
        }
        room
    }

    /// Writes what waits and then `line`, if there is a file. Either all of it is written afterwards or none; what waits
    /// goes on waiting then. Says how many lines have been written.
    fn append(&mut self, line: &[u8]) -> io::Result<u64> {
        let Self { file: Some(file), waiting, lines, .. } = self else { return Ok(0) };
        let own = u64::from(!line.is_empty());
        if waiting.is_empty() {
            if own > 0 {
                file.append(line)?;
            }
            return Ok(own);
        }
        let before = waiting.len();
        waiting.extend_from_slice(line);
        if let Err(error) = file.append(waiting) {
            waiting.truncate(before);
            return Err(error);
        }
        waiting.clear();
        Ok(std::mem::take(lines) + own)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use serde_json::Value;
    use tempfile::TempDir;

    use super::*;

    fn fleeting() -> Journal {
        Journal::fleeting(Metrics::new().unwrap())
    }

    #[test]
    fn events_of_a_session_are_numbered_without_a_gap() {
        let journal = fleeting();
        let sequences = [Sequence::begin("a"), Sequence::begin("b")];
        std::thread::scope(|scope| {
            for sequence in sequences.iter().chain(&sequences) {
                let journal = &journal;
                scope.spawn(move || {
                    for _ in 0..100 {
                        journal.write(sequence, &Event::of(Kind::PolicyLoaded), Need::After, Instant::now());
                    }
                });
            }
        });
        let (lines, _) = journal.feed().follow();
        let events: Vec<Value> = lines.iter().map(|line| serde_json::from_slice(line).unwrap()).collect();
        for sequence in &sequences {
            let own: Vec<_> = events.iter().filter(|event| event["session_id"] == *sequence.id()).collect();
            let numbers: Vec<_> = own.iter().map(|event| event["sequence"].as_u64().unwrap()).collect();
            assert_eq!(numbers, (1..=200).collect::<Vec<_>>());
            assert_eq!(own[9]["event_id"], format!("{}-10", sequence.id()));
        }
    }

    /// A journal with a file, whose folder it gives; the file is found not to be writable while `broken`.
    fn journal(on_full: OnFull, durable: bool) -> (Journal, TempDir) {
        let dir = TempDir::new().unwrap();
        let config =
            AuditConfig { events: Some(dir.path().join("events")), on_full, durable, ..AuditConfig::default() };
        (Journal::open(&config, Metrics::new().unwrap()).unwrap(), dir)
    }

    fn kinds(dir: &TempDir) -> Vec<(u64, String, Option<u64>)> {
        let text = fs::read_to_string(dir.path().join("events")).unwrap();
        let events = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        events
            .map(|event| {
                let kind = event["kind"].as_str().unwrap().to_owned();
                (event["sequence"].as_u64().unwrap(), kind, event["dropped"].as_u64())
            })
            .collect()
    }

    #[test]
    fn what_could_not_be_written_is_missing_and_said_to_be() {
        for (on_full, before) in [(OnFull::Block, false), (OnFull::Drop, true)] {
            let (journal, dir) = journal(on_full, false);
            let sequence = Sequence::begin("a");
            let write = |need| journal.write(&sequence, &Event::of(Kind::PolicyLoaded), need, Instant::now());
            assert!(matches!(write(Need::Before), Written::Kept(EventId(1))));
            journal.state().file.as_mut().unwrap().break_off();
            assert!(matches!(write(Need::After), Written::Missing));
            match write(Need::Before) {
                Written::Missing => assert!(before),
                Written::Refused => assert!(!before),
                other => panic!("{other:?}"),
            }
            journal.state().file.as_mut().unwrap().mend();
            assert!(matches!(write(Need::Before), Written::Kept(EventId(3))));
            let missing = if before { 2 } else { 1 };
            let loaded = |number| (number, "policy_loaded".to_owned(), None);
            assert_eq!(kinds(&dir), [loaded(1), (2, "gap".to_owned(), Some(missing)), loaded(3)]);
        }
    }

    #[test]
    fn what_may_wait_is_written_with_what_comes_next() {
        let (journal, dir) = journal(OnFull::Block, false);
        let sequence = Sequence::begin("a");
        let write = |need| journal.write(&sequence, &Event::of(Kind::PolicyLoaded), need, Instant::now());
        let written = || kinds(&dir).into_iter().map(|(number, ..)| number).collect::<Vec<_>>();
        assert!(matches!(write(Need::Later), Written::Kept(EventId(1))));
        assert_eq!((written(), journal.feed().follow().0.len()), (vec![], 1));
        // It has its number, and waits for as long as it takes.
        journal.state().file.as_mut().unwrap().break_off();
        assert!(matches!(write(Need::Before), Written::Refused));
        assert!(matches!(write(Need::Later), Written::Kept(EventId(2))));
        journal.state().file.as_mut().unwrap().mend();
        assert!(matches!(write(Need::Before), Written::Kept(EventId(3))));
        assert_eq!(written(), [1, 2, 3]);
        // No more waits than there is room for.
        loop {
            assert!(matches!(write(Need::Later), Written::Kept(_)));
            if journal.state().waiting.is_empty() {
                break;
            }
        }
        let last = sequence.last.load(Ordering::Relaxed);
        assert_eq!(written(), (1..=last).collect::<Vec<_>>());
        write(Need::Later);
        fs::rename(dir.path().join("events"), dir.path().join("old")).unwrap();
        journal.reopen();
        write(Need::Later);
        drop(journal);
        assert_eq!(written(), [last + 2]);
        assert_eq!(fs::read_to_string(dir.path().join("old")).unwrap().lines().count() as u64, last + 1);
    }

    #[tokio::test(start_paused = true)]
    async fn what_may_wait_does_so_for_a_moment() {
        let (journal, dir) = journal(OnFull::Block, false);
        let sequence = Sequence::begin("a");
        let write = || drop(journal.write(&sequence, &Event::of(Kind::PolicyLoaded), Need::Later, Instant::now()));
        let reader = async {
            for number in 1..4 {
                write();
                assert_eq!(kinds(&dir).len(), number - 1);
                tokio::time::sleep(WAIT + Duration::from_millis(1)).await;
                assert_eq!(kinds(&dir).len(), number);
            }
            journal.state().file.as_mut().unwrap().break_off();
            write();
            tokio::time::sleep(TRY_AGAIN / 2).await;
            journal.state().file.as_mut().unwrap().mend();
            tokio::time::sleep(TRY_AGAIN).await;
            assert_eq!(kinds(&dir).len(), 4);
        };
        tokio::select! {
            () = journal.keep_up() => {}
            () = reader => {}
        }
    }

    #[test]
    fn who_waits_is_told_of_the_sync() {
        let (journal, dir) = journal(OnFull::Block, true);
        let sequence = Sequence::begin("a");
        let event = Event::of(Kind::PolicyLoaded);
        assert!(matches!(journal.write(&sequence, &event, Need::After, Instant::now()), Written::Kept(_)));
        let Written::Syncing(EventId(2), synced) = journal.write(&sequence, &event, Need::Before, Instant::now())
        else {
            panic!()
        };
        assert!(synced.blocking_recv().unwrap());
        assert_eq!(kinds(&dir).len(), 2);
    }
}
