// SPDX-License-Identifier: Apache-2.0
//! Keeps a thread and the replay servers that it talks to on one processor.
//!
//! They take turns: one sends an image and sleeps, the other recovers it and sleeps, some 20,000 times a second. Where another processor
//! is idle the kernel wakes each of them there, and every turn waits for a processor to wake up: recoveries in-process then take two to
//! three times as long (docs/notes/exploring.md). Nothing is lost by one processor, since only one of them ever has something to do.
//!
//! Which processor that is the kernel decides: a thread is free for a moment and then stays where it is, until it has to wait for its
//! turn because others want that processor, too; then it is free for a moment again. So threads spread over the processors that there
//! are, whoever else is on the machine.

use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};
use std::cell::RefCell;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How long the kernel may choose: some hundred turns.
const FREE: Duration = Duration::from_millis(5);
/// How long a thread stays on its processor before it is asked how long it waited.
const BOUND: Duration = Duration::from_millis(100);
/// A thread that waits for its processor for more than this share of the time has others beside it. Its own servers make it wait for
/// a few percent.
const CROWDED: f64 = 0.15;
const BYTE_BITS: usize = 8;

/// The next [`Affinity::number`]: no two threads have one in common.
static NEXT: AtomicU64 = AtomicU64::new(1);

thread_local! {
    static AFFINITY: RefCell<Option<Affinity>> = RefCell::new(Affinity::of_this_thread());
}

/// To be called between runs: a thread may work from memory for long while others want its processor.
pub fn refresh() {
    AFFINITY.with_borrow_mut(|affinity| affinity.iter_mut().for_each(|affinity| affinity.refresh(Instant::now())));
}

/// Where the servers of this thread are to run: a number that changes with the processors, and the processors as sched_setaffinity(2)
/// takes them. None if they are still those of the number `known` (0: of none).
pub fn changed_since(known: u64) -> Option<(u64, Vec<u8>)> {
    AFFINITY.with_borrow_mut(|affinity| {
        let affinity = affinity.as_mut()?;
        affinity.refresh(Instant::now());
        (affinity.number != known).then(|| (affinity.number, bytes_of(&affinity.processors)))
    })
}

/// Where one thread runs.
struct Affinity {
    /// Changes with the processors.
    number: u64,
    /// Those that it runs on now.
    processors: CpuSet,
    /// Those that it may run on.
    allowed: CpuSet,
    waits: Waits,
    /// How long the thread had waited when that was last read, and when it was read.
    measured: (Duration, Instant),
    /// It stays on one processor.
    is_bound: bool,
}

/// How long the thread was ready to run and did not, by the kernel (`/proc/thread-self/schedstat`: nanoseconds that it ran, that it
/// waited, and how often).
struct Waits(File);

impl Waits {
    /// None: unknown. A kernel that counts neither says that the thread never ran.
    fn until_now(&self) -> Option<Duration> {
        let mut text = [0; 128];
        let bytes = self.0.read_at(&mut text, 0).ok()?;
        let text = std::str::from_utf8(&text[..bytes]).ok()?;
        let (ran, rest) = text.split_once(' ')?;
        let waited = rest.split_ascii_whitespace().next()?.parse().ok()?;
        (ran != "0").then_some(Duration::from_nanos(waited))
    }
}

impl Affinity {
    /// None: there is one processor, or the kernel does not say what is needed.
    fn of_this_thread() -> Option<Self> {
        static ALLOWED: OnceLock<Option<CpuSet>> = OnceLock::new();
        let allowed = (*ALLOWED.get_or_init(|| sched_getaffinity(None).ok())).filter(|allowed| allowed.count() > 1)?;
        sched_setaffinity(None, &allowed).ok()?; // a thread begins where the one that made it was bound
        let waits = Waits(File::open("/proc/thread-self/schedstat").ok()?);
        let measured = (Duration::ZERO, Instant::now());
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        Some(Self { number, processors: allowed, allowed, waits, measured, is_bound: false })
    }

    /// Binds the thread to its processor or frees it, when it is time to.
    fn refresh(&mut self, now: Instant) {
        let since = now.duration_since(self.measured.1);
        if since < if self.is_bound { BOUND } else { FREE } {
            return;
        }
        let waited = self.waits.until_now();
        let is_alone = waited.is_some_and(|waited| waited.saturating_sub(self.measured.0) <= since.mul_f64(CROWDED));
        self.measured = (waited.unwrap_or_default(), now);
        if self.is_bound == is_alone {
            return;
        }
        let processors = if is_alone { of_one(sched_getcpu()) } else { self.allowed };
        if sched_setaffinity(None, &processors).is_ok() {
            self.number = NEXT.fetch_add(1, Ordering::Relaxed);
            (self.processors, self.is_bound) = (processors, is_alone);
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

    /// A kernel that says that the thread ran and waited so long, and says nothing else from then on.
    fn waits(ran: u64, waited: Duration) -> Waits {
        static FILES: AtomicU64 = AtomicU64::new(0);
        let number = FILES.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("faultline-affinity-{}-{number}", std::process::id()));
        std::fs::write(&path, format!("{ran} {} 1\n", waited.as_nanos())).expect("a file");
        let file = File::open(&path).expect("just written");
        std::fs::remove_file(&path).expect("just written");
        Waits(file)
    }

    /// In a thread of its own, which may be moved; not where there is one processor, or nothing to ask.
    fn in_a_thread(test: impl FnOnce(Affinity) + Send) {
        let run = || match Affinity::of_this_thread() {
            Some(affinity) => test(Affinity { waits: waits(1, Duration::ZERO), ..affinity }),
            None => assert_eq!(changed_since(0), None),
        };
        std::thread::scope(|scope| scope.spawn(run).join().expect("no panic"));
    }

    /// Alone on its processor.
    fn bind(affinity: &mut Affinity) {
        let start = affinity.measured.1;
        affinity.refresh(start + FREE / 2);
        assert!(!affinity.is_bound && affinity.processors == affinity.allowed);
        affinity.refresh(start + FREE);
        assert!(affinity.is_bound);
    }

    #[test]
    fn a_thread_takes_one_processor_and_gives_it_up_where_it_has_to_wait() {
        in_a_thread(|mut affinity| {
            let (allowed, first) = (processors(), affinity.number);
            bind(&mut affinity);
            let (one, second) = (affinity.processors, affinity.number);
            assert_eq!((processors().count(), processors()), (1, one));
            assert!(second > first && first > 0);
            affinity.refresh(affinity.measured.1 + BOUND);
            assert_eq!((processors(), affinity.number), (one, second), "it keeps it");
            affinity.waits = waits(1, BOUND / 2);
            affinity.refresh(affinity.measured.1 + BOUND / 2);
            assert!(affinity.is_bound, "it is not time yet");
            affinity.refresh(affinity.measured.1 + BOUND);
            assert_eq!((processors(), affinity.processors, affinity.is_bound), (allowed, allowed, false));
            assert!(affinity.number > second);
        });
    }

    #[test]
    fn a_thread_is_not_bound_where_its_waiting_is_unknown() {
        in_a_thread(|mut affinity| {
            let (allowed, nothing) = (processors(), || waits(0, Duration::ZERO));
            affinity.waits = nothing();
            affinity.refresh(affinity.measured.1 + FREE);
            assert_eq!((processors(), affinity.is_bound), (allowed, false));
            affinity.waits = waits(1, Duration::ZERO);
            affinity.refresh(affinity.measured.1 + FREE);
            assert!(affinity.is_bound);
            affinity.waits = nothing();
            affinity.refresh(affinity.measured.1 + BOUND);
            assert_eq!((processors(), affinity.is_bound), (allowed, false));
        });
    }

    #[test]
    fn a_thread_that_another_one_made_is_not_bound_to_its_processor() {
        in_a_thread(|mut affinity| {
            let allowed = processors();
            bind(&mut affinity);
            let other = || (processors(), Affinity::of_this_thread().expect("as here").number, processors());
            let (before, number, after) = std::thread::spawn(other).join().expect("no panic");
            assert_eq!((before, after), (affinity.processors, allowed));
            assert_ne!(number, affinity.number);
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
