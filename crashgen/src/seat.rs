// SPDX-License-Identifier: Apache-2.0
//! Keeps a thread and the replay servers that it talks to on one processor.
//!
//! They take turns: one sends an image and sleeps, the other recovers it and sleeps, some 20,000 times a second. Where another processor
//! is idle the kernel wakes each of them there, and every turn waits for a processor to wake up: recoveries in-process then take two to
//! three times as long (docs/notes/exploring.md). Nothing is lost by one processor, since only one of them ever has something to do.
//!
//! Which processor that is the kernel decides: a thread is free for a moment and then stays where it is, until it has to wait for its
//! turn because others want that processor, too; then it is free for a moment again. So seats spread over the processors that there are,
//! whoever else is on the machine.

use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};
use std::cell::RefCell;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How long the kernel may choose: some hundred turns.
const FREE: Duration = Duration::from_millis(5);
/// How long a seat is kept before it is looked at.
const SEATED: Duration = Duration::from_millis(100);
/// A thread that waits for its processor for more than this share of the time has others beside it. Its own servers make it wait for
/// a few percent.
const CROWDED: f64 = 0.15;
const BYTE_BITS: usize = 8;

/// The next seat's number: no two threads have one in common.
static NEXT: AtomicU64 = AtomicU64::new(1);

thread_local! {
    static SEAT: RefCell<Option<Seat>> = RefCell::new(Seat::of_this_thread());
}

/// Between runs: the thread may work from memory for long, and find that others want its processor.
pub fn look() {
    SEAT.with_borrow_mut(|seat| seat.iter_mut().for_each(|seat| seat.look(Instant::now())));
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

/// How long the thread was ready to run and did not, as the kernel tells it (`/proc/thread-self/schedstat`: nanoseconds that it ran, that it
/// waited, and how often).
struct Waits(File);

impl Waits {
    /// None: not told. A kernel that counts neither says that the thread never ran.
    fn until_now(&self) -> Option<Duration> {
        let mut text = [0; 128];
        let bytes = self.0.read_at(&mut text, 0).ok()?;
        let text = std::str::from_utf8(&text[..bytes]).ok()?;
        let (ran, rest) = text.split_once(' ')?;
        let waited = rest.split_ascii_whitespace().next()?.parse().ok()?;
        (ran != "0").then_some(Duration::from_nanos(waited))
    }
}

impl Seat {
    /// None: there is one processor, or the kernel does not tell what is needed.
    fn of_this_thread() -> Option<Self> {
        static ALLOWED: OnceLock<Option<CpuSet>> = OnceLock::new();
        let allowed = (*ALLOWED.get_or_init(|| sched_getaffinity(None).ok())).filter(|allowed| allowed.count() > 1)?;
        sched_setaffinity(None, &allowed).ok()?; // a thread begins where the one that made it was seated
        let waits = Waits(File::open("/proc/thread-self/schedstat").ok()?);
        let looked = (Duration::ZERO, Instant::now());
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        Some(Self { number, processors: allowed, allowed, waits, looked, is_seated: false })
    }

    /// Takes a seat or gives it up, when it is time to.
    fn look(&mut self, now: Instant) {
        let since = now.duration_since(self.looked.1);
        if since < if self.is_seated { SEATED } else { FREE } {
            return;
        }
        let waited = self.waits.until_now();
        let is_alone = waited.is_some_and(|waited| waited.saturating_sub(self.looked.0) <= since.mul_f64(CROWDED));
        self.looked = (waited.unwrap_or_default(), now);
        if self.is_seated == is_alone {
            return;
        }
        let processors = if is_alone { of_one(sched_getcpu()) } else { self.allowed };
        if sched_setaffinity(None, &processors).is_ok() {
            self.number = NEXT.fetch_add(1, Ordering::Relaxed);
            (self.processors, self.is_seated) = (processors, is_alone);
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

    /// The kernel tells that it ran and waited so long, and nothing else from then on.
    fn told(ran: u64, waited: Duration) -> Waits {
        static FILES: AtomicU64 = AtomicU64::new(0);
        let number = FILES.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("faultline-seat-{}-{number}", std::process::id()));
        std::fs::write(&path, format!("{ran} {} 1\n", waited.as_nanos())).expect("a file");
        let file = File::open(&path).expect("just written");
        std::fs::remove_file(&path).expect("just written");
        Waits(file)
    }

    /// In a thread of its own, which may be moved; not where there is one processor, or nothing to ask.
    fn in_a_thread(test: impl FnOnce(Seat) + Send) {
        let run = || match Seat::of_this_thread() {
            Some(seat) => test(Seat { waits: told(1, Duration::ZERO), ..seat }),
            None => assert_eq!(since(0), None),
        };
        std::thread::scope(|scope| scope.spawn(run).join().expect("no panic"));
    }

    /// Alone on its processor.
    fn take(seat: &mut Seat) {
        let start = seat.looked.1;
        seat.look(start + FREE / 2);
        assert!(!seat.is_seated && seat.processors == seat.allowed);
        seat.look(start + FREE);
        assert!(seat.is_seated);
    }

    #[test]
    fn a_thread_takes_one_processor_and_gives_it_up_where_it_has_to_wait() {
        in_a_thread(|mut seat| {
            let (allowed, first) = (processors(), seat.number);
            take(&mut seat);
            let (one, second) = (seat.processors, seat.number);
            assert_eq!((processors().count(), processors()), (1, one));
            assert!(second > first && first > 0);
            seat.look(seat.looked.1 + SEATED);
            assert_eq!((processors(), seat.number), (one, second), "it keeps it");
            seat.waits = told(1, SEATED / 2);
            seat.look(seat.looked.1 + SEATED / 2);
            assert!(seat.is_seated, "it is not looked at yet");
            seat.look(seat.looked.1 + SEATED);
            assert_eq!((processors(), seat.processors, seat.is_seated), (allowed, allowed, false));
            assert!(seat.number > second);
        });
    }

    #[test]
    fn without_a_word_of_waiting_no_seat_is_taken_or_kept() {
        in_a_thread(|mut seat| {
            let (allowed, nothing) = (processors(), || told(0, Duration::ZERO));
            seat.waits = nothing();
            seat.look(seat.looked.1 + FREE);
            assert_eq!((processors(), seat.is_seated), (allowed, false));
            seat.waits = told(1, Duration::ZERO);
            seat.look(seat.looked.1 + FREE);
            assert!(seat.is_seated);
            seat.waits = nothing();
            seat.look(seat.looked.1 + SEATED);
            assert_eq!((processors(), seat.is_seated), (allowed, false));
        });
    }

    #[test]
    fn a_thread_that_another_one_made_is_not_bound_to_its_seat() {
        in_a_thread(|mut seat| {
            let allowed = processors();
            take(&mut seat);
            let other = || (processors(), Seat::of_this_thread().expect("as here").number, processors());
            let (before, number, after) = std::thread::spawn(other).join().expect("no panic");
            assert_eq!((before, after), (seat.processors, allowed));
            assert_ne!(number, seat.number);
        });
    }

    #[test]
    fn a_set_is_as_the_kernel_takes_it() {
        let mut set = of_one(0);
        set.set(9);
        let bytes = bytes_of(&set);
        assert_eq!((bytes.len(), &bytes[..3]), (CpuSet::MAX_CPU / 8, &[1, 2, 0][..]));
    }
}
