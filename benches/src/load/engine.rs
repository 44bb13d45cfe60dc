//! The event loop that drives origin and clients, in one thread on one CPU.
//!
//! Both ends of every proxy are in one loop over one epoll instance, and nothing is allocated for an ordinary
//! request. So the load costs about what the cheapest relay costs, and any proxy that does more is the limit itself.
//!
//! While a proxy is measured the loop never sleeps: it would be the proxy's writes that wake it up, at a price that has
//! no counterpart where clients are on other machines, and that slow proxies pay more often than quick ones.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::net::{SocketFlags, accept_with};

use super::client::{self, Client, Plan};
use super::origin::{self, Origin, Service};
use super::stats::Tally;

/// How long nothing may happen before a run is given up.
const STALL: Duration = Duration::from_secs(10);
/// How many connections are being set up at once where the number of connections is what counts.
const RAMP: usize = 32;
/// The time between two events.
const TICK: Duration = Duration::from_millis(1);

enum Slot {
    Listener(TcpListener, Service),
    Origin(Box<Origin>),
    Client(Box<Client>),
}

/// What ends a run.
#[derive(Clone, Copy, Debug)]
enum Until {
    Time(Instant),
    Operations(u64),
}

/// How the loop waits for something to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Waiting {
    Asleep,
    Busy,
}

/// Origin and clients.
pub(crate) struct Engine {
    epoll: OwnedFd,
    slots: Vec<Option<Slot>>,
    free: Vec<usize>,
    events: Vec<epoll::Event>,
    scratch: Box<[u8]>,
    epoch: Instant,
    serial: u64,
    tally: Tally,
    idle: Duration,
    /// Connections that get events, in turn.
    subscribed: Vec<usize>,
}

impl Engine {
    /// An engine with nothing to do.
    pub(crate) fn new() -> anyhow::Result<Self> {
        Ok(Self {
            epoll: epoll::create(CreateFlags::CLOEXEC)?,
            slots: Vec::new(),
            free: Vec::new(),
            events: Vec::with_capacity(256),
            scratch: vec![0; 256 * 1024].into_boxed_slice(),
            epoch: Instant::now(),
            serial: 0,
            tally: Tally::default(),
            idle: Duration::ZERO,
            subscribed: Vec::new(),
        })
    }

    /// Adds a service to the origin, on a port of its own.
    pub(crate) fn listen(&mut self, service: Service) -> anyhow::Result<SocketAddr> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        listener.set_nonblocking(true)?;
        // The standard library's backlog of 128 is too short for thousands of tunnels at once.
        rustix::net::listen(&listener, 4096)?;
        let address = listener.local_addr()?;
        let index = self.insert(Slot::Listener(listener, service));
        self.watch(index, EventFlags::IN)?;
        Ok(address)
    }

    /// Keeps `connections` clients busy for `time` and gives what they achieved.
    pub(crate) fn run(&mut self, plan: &Plan, connections: usize, time: Duration) -> anyhow::Result<Tally> {
        for _ in self.clients()..connections {
            self.start(plan)?;
        }
        self.tally = Tally::default();
        self.idle = Duration::ZERO;
        self.drive(plan, Until::Time(Instant::now() + time), Waiting::Busy)?;
        Ok(std::mem::take(&mut self.tally))
    }

    /// How long the last run had nothing to do.
    pub(crate) const fn idle(&self) -> Duration {
        self.idle
    }

    /// Opens connections until `connections` of them are idle.
    pub(crate) fn open(&mut self, plan: &Plan, connections: usize) -> anyhow::Result<()> {
        let open = self.clients();
        let missing = connections.saturating_sub(open);
        let mut done = 0;
        while done < missing {
            let now = RAMP.min(missing - done);
            for _ in 0..now {
                self.start(plan)?;
            }
            self.tally = Tally::default();
            self.drive(plan, Until::Operations(now as u64), Waiting::Asleep)?;
            done += now;
        }
        Ok(())
    }

    /// Does so many operations, one after the other, each on a new connection.
    pub(crate) fn complete(&mut self, plan: &Plan, operations: usize) -> anyhow::Result<()> {
        self.tally = Tally::default();
        self.start(plan)?;
        self.drive(plan, Until::Operations(operations as u64), Waiting::Asleep)?;
        self.hang_up();
        Ok(())
    }

    /// Does one operation on a new connection.
    pub(crate) fn once(&mut self, plan: &Plan) -> anyhow::Result<()> {
        self.tally = Tally::default();
        let done = self.start(plan).and_then(|()| self.drive(plan, Until::Operations(1), Waiting::Asleep));
        self.hang_up();
        done
    }

    /// Lets the origin serve what comes for a while.
    pub(crate) fn settle(&mut self, plan: &Plan, time: Duration) -> anyhow::Result<()> {
        self.drive(plan, Until::Time(Instant::now() + time), Waiting::Asleep)
    }

    /// Closes all clients. The origin's connections are the proxy's to close.
    pub(crate) fn hang_up(&mut self) {
        for index in 0..self.slots.len() {
            if let Some(slot) = self.slots.get_mut(index)
                && matches!(slot, Some(Slot::Client(_)))
            {
                *slot = None;
                self.free.push(index);
            }
        }
    }

    fn clients(&self) -> usize {
        self.slots.iter().filter(|slot| matches!(slot, Some(Slot::Client(_)))).count()
    }

    fn drive(&mut self, plan: &Plan, until: Until, waiting: Waiting) -> anyhow::Result<()> {
        let mut progress = Instant::now();
        let mut next_event = progress + TICK;
        loop {
            let now = Instant::now();
            match until {
                Until::Time(end) if now >= end => return Ok(()),
                Until::Operations(count) if self.tally.operations >= count => return Ok(()),
                _ => {}
            }
            if now.duration_since(progress) > STALL {
                bail!("nothing has happened for {STALL:?}");
            }
            if !self.subscribed.is_empty() && now >= next_event {
                next_event += TICK;
                self.send_event();
            }
            let wait = match until {
                _ if waiting == Waiting::Busy => Duration::ZERO,
                _ if !self.subscribed.is_empty() => TICK,
                Until::Time(end) => (end - now).min(STALL),
                Until::Operations(_) => STALL,
            };
            if self.poll(plan, wait)? {
                progress = now;
            } else {
                self.idle += now.elapsed();
            }
        }
    }

    /// Waits for readiness and handles it; false if there was none.
    fn poll(&mut self, plan: &Plan, wait: Duration) -> anyhow::Result<bool> {
        let mut events = std::mem::take(&mut self.events);
        events.clear();
        let wait = Timespec::try_from(wait).context("the time to wait is too long")?;
        match epoll::wait(&self.epoll, spare_capacity(&mut events), Some(&wait)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => bail!("epoll: {error}"),
        }
        let handled = events.iter().try_for_each(|event| {
            let data = event.data;
            self.handle(data.u64() as usize, plan)
        });
        let some = !events.is_empty();
        self.events = events;
        handled.map(|()| some)
    }

    fn handle(&mut self, index: usize, plan: &Plan) -> anyhow::Result<()> {
        // A slot may have been emptied by an earlier event of the same batch.
        match self.slots.get_mut(index).and_then(Option::as_mut) {
            None => {}
            Some(Slot::Listener(listener, service)) => {
                let mut accepted = Vec::new();
                while let Ok(socket) = accept_with(&*listener, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC) {
                    accepted.push(service.accept(socket.into())?);
                }
                for origin in accepted {
                    let index = self.insert(Slot::Origin(Box::new(origin)));
                    self.watch(index, EventFlags::IN)?;
                }
            }
            Some(Slot::Origin(origin)) => match origin.turn(&mut self.scratch) {
                Ok(origin::After::Read) => {}
                Ok(origin::After::Write) => self.modify(index, EventFlags::OUT)?,
                Ok(origin::After::Events) => self.subscribed.push(index),
                // What proxies do to the origin's connections is their business, unless a client suffers from it.
                Ok(origin::After::Close) | Err(_) => self.remove(index),
            },
            Some(Slot::Client(client)) => match client.turn(plan, self.epoch, &mut self.scratch, &mut self.tally)? {
                client::After::Read => self.modify(index, EventFlags::IN)?,
                client::After::Write => self.modify(index, EventFlags::OUT)?,
                client::After::Settled => {}
                client::After::Again => {
                    self.remove(index);
                    self.start(plan)?;
                }
            },
        }
        Ok(())
    }

    fn start(&mut self, plan: &Plan) -> anyhow::Result<()> {
        self.serial += 1;
        let mut client = Client::start(plan, self.serial)?;
        let after = client.turn(plan, self.epoch, &mut self.scratch, &mut self.tally)?;
        let index = self.insert(Slot::Client(Box::new(client)));
        self.watch(index, if after == client::After::Write { EventFlags::OUT } else { EventFlags::IN })
    }

    fn send_event(&mut self) {
        let Some(index) = self.subscribed.first().copied() else { return };
        self.subscribed.rotate_left(1);
        let sent = match self.slots.get_mut(index) {
            Some(Some(Slot::Origin(origin))) => origin.event(self.epoch).is_ok(),
            _ => false,
        };
        if !sent {
            self.subscribed.retain(|&other| other != index);
        }
    }

    fn insert(&mut self, slot: Slot) -> usize {
        let index = self.free.pop().unwrap_or(self.slots.len());
        match self.slots.get_mut(index) {
            Some(place) => *place = Some(slot),
            None => self.slots.push(Some(slot)),
        }
        index
    }

    fn remove(&mut self, index: usize) {
        self.subscribed.retain(|&other| other != index);
        if let Some(slot) = self.slots.get_mut(index) {
            *slot = None;
            self.free.push(index);
        }
    }

    fn watch(&mut self, index: usize, interest: EventFlags) -> anyhow::Result<()> {
        let data = EventData::new_u64(index as u64);
        let link = match self.slots.get_mut(index) {
            Some(Some(Slot::Listener(listener, _))) => {
                return Ok(epoll::add(&self.epoll, &*listener, data, interest)?);
            }
            Some(Some(Slot::Origin(origin))) => &mut origin.link,
            Some(Some(Slot::Client(client))) => &mut client.link,
            _ => return Ok(()),
        };
        link.interest = interest;
        Ok(epoll::add(&self.epoll, &*link, data, interest)?)
    }

    fn modify(&mut self, index: usize, interest: EventFlags) -> anyhow::Result<()> {
        let link = match self.slots.get_mut(index) {
            Some(Some(Slot::Origin(origin))) => &mut origin.link,
            Some(Some(Slot::Client(client))) => &mut client.link,
            _ => return Ok(()),
        };
        if std::mem::replace(&mut link.interest, interest) == interest {
            return Ok(());
        }
        Ok(epoll::modify(&self.epoll, &*link, EventData::new_u64(index as u64), interest)?)
    }
}
