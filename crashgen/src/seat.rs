// SPDX-License-Identifier: Apache-2.0
//! Keeps a thread and the replay servers that it talks to on one processor.
//!
//! They take turns: one sends an image and sleeps, the other recovers it and sleeps, some 20,000 times a second. Where another processor
//! is idle the kernel wakes each of them there, and every turn waits for a processor to wake up: recoveries in-process then take two to
//! three times as long (docs/benchmarks.md). Nothing is lost by one processor, since only one of them ever has something to do.
//!
//! Which processor that is the kernel decides: a thread is free for a moment and then stays where it is, until it has to wait for its
//! turn because others want that processor, too; then it is free for a moment again. So seats spread over the processors that there are,
//! whoever else is on the machine.

use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};
use std::cell::RefCell;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// How long the kernel may choose: some hundred turns.
const FREE: Duration = Duration::from_millis(5);
/// How long a seat is kept before it is looked at.
const SEATED: Duration = Duration::from_millis(100);
/// A thread that waits for its processor for more than this share of the time has others beside it. Its own servers make it wait for
/// a few percent.
const CROWDED: f64 = 0.15;
const BYTE_BITS: usize = 8;

thread_local! {
    static SEAT: RefCell<Option<Seat>> = RefCell::new(Seat::of_this_thread());
}

/// Where a server of this thread's is to run, if it was last told of seat number `known` (0: never) and that is no longer so: the number of the
/// seat, and the processors as sched_setaffinity(2) takes them.
pub fn since(known: u64) -> Option<(u64, Vec<u8>)> {
    SEAT.with_borrow_mut(|seat| {
        let seat = seat.as_mut()?;
        seat.look(Instant::now());
        (seat.number != known).then(|| (seat.number, bytes_of(&seat.processors)))
    })
}

/// A thread's.
struct Seat {
    /// Changes with the processors.
    number: u64,
    /// Those that it runs on now.
    processors: CpuSet,
    /// Those that it may run on.
    allowed: CpuSet,
    waits: Waits,
    /// What the kernel has told of waiting when it was last looked at, and when that was.
    looked: (Duration, Instant),
    is_seated: bool,
}

/// How long the thread was ready to run and did not, as the kernel tells it (`/proc/thread-self/schedstat`).
struct Waits(File);

impl Waits {
    fn until_now(&self) -> Option<Duration> {
        let mut text = [0; 128];
        let bytes = self.0.read_at(&mut text, 0).ok()?;
        let text = std::str::from_utf8(&text[..bytes]).ok()?;
        Some(Duration::from_nanos(text.split_ascii_whitespace().nth(1)?.parse().ok()?))
    }
}

impl Seat {
    /// None: there is one processor, or the kernel does not tell what is needed.
    fn of_this_thread() -> Option<Self> {
        static ALLOWED: OnceLock<Option<CpuSet>> = OnceLock::new();
        let allowed = (*ALLOWED.get_or_init(|| sched_getaffinity(None).ok())).filter(|allowed| allowed.count() > 1)?;
        sched_setaffinity(None, &allowed).ok()?; // a thread begins where the one that made it was seated
        let waits = Waits(File::open("/proc/thread-self/schedstat").ok()?);
        let looked = (waits.until_now()?, Instant::now());
        Some(Self { number: 0, processors: allowed, allowed, waits, looked, is_seated: false })
    }

    /// Takes a seat or gives it up, when it is time to.
    fn look(&mut self, now: Instant) {
        let since = now.duration_since(self.looked.1);
        if since < if self.is_seated { SEATED } else { FREE } {
            return;
        }
        let waited = self.waits.until_now().unwrap_or_default();
        let is_seated = waited.saturating_sub(self.looked.0) <= since.mul_f64(CROWDED);
        self.looked = (waited, now);
        if self.is_seated != is_seated {
            self.go(if is_seated { of_one(sched_getcpu()) } else { self.allowed });
            self.is_seated = is_seated;
        }
    }

    fn go(&mut self, processors: CpuSet) {
        if sched_setaffinity(None, &processors).is_ok() {
            self.processors = processors;
            self.number += 1;
        }
    }
}

fn of_one(processor: usize) -> CpuSet {
    let mut set = CpuSet::new();
    set.set(processor);
    set
}

fn bytes_of(set: &CpuSet) -> Vec<u8> {
    let byte = |at: usize| (0..BYTE_BITS).fold(0, |byte, bit| byte | u8::from(set.is_set(at * BYTE_BITS + bit)) << bit);
    (0..CpuSet::MAX_CPU / BYTE_BITS).map(byte).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn processors() -> CpuSet {
        sched_getaffinity(None).expect("of this thread")
    }

    /// The kernel tells that it waited so long, and nothing else from then on.
    fn waited(nanoseconds: u64) -> Waits {
        let path = std::env::temp_dir().join(format!("faultline-seat-{}-{nanoseconds}", std::process::id()));
        std::fs::write(&path, format!("1 {nanoseconds} 1\n")).expect("a file");
        let file = File::open(&path).expect("just written");
        let _ = std::fs::remove_file(&path); // another test may have
        Waits(file)
    }

    /// Alone on its processor.
    fn seated() -> Seat {
        let mut seat = Seat { waits: waited(0), ..Seat::of_this_thread().expect("more than one processor") };
        let start = seat.looked.1;
        seat.look(start + FREE / 2);
        assert!(!seat.is_seated && seat.processors == seat.allowed);
        seat.look(start + FREE);
        assert!(seat.is_seated);
        seat
    }

    #[test]
    fn a_thread_takes_one_processor_and_gives_it_up_where_it_has_to_wait() {
        let allowed = processors();
        if allowed.count() == 1 {
            assert_eq!(since(0), None);
            return;
        }
        let mut seat = seated();
        assert_eq!((processors().count(), processors(), seat.number), (1, seat.processors, 1));
        seat.look(seat.looked.1 + SEATED);
        assert_eq!((processors(), seat.number), (seat.processors, 1), "it keeps it");
        seat.waits = waited(SEATED.as_nanos() as u64 / 2);
        seat.look(seat.looked.1 + SEATED / 2);
        assert!(seat.is_seated, "it is not looked at yet");
        seat.look(seat.looked.1 + SEATED);
        assert_eq!((processors(), seat.processors, seat.number, seat.is_seated), (allowed, allowed, 2, false));
    }

    #[test]
    fn a_thread_that_another_one_made_is_not_bound_to_its_seat() {
        let allowed = processors();
        if allowed.count() == 1 {
            return;
        }
        let seat = seated();
        let other = || (processors(), Seat::of_this_thread().expect("as here").processors, processors());
        let (before, seat_of_other, after) = std::thread::spawn(other).join().expect("no panic");
        assert_eq!((before, seat_of_other, after), (seat.processors, allowed, allowed));
    }

    #[test]
    fn a_set_is_as_the_kernel_takes_it() {
        let mut set = of_one(0);
        set.set(9);
        let bytes = bytes_of(&set);
        assert_eq!((bytes.len(), &bytes[..3]), (CpuSet::MAX_CPU / 8, &[1, 2, 0][..]));
    }
}
