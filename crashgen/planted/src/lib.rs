// SPDX-License-Identifier: Apache-2.0
//! Faults planted in the tester itself: a tester that is never seen to fail proves nothing.
//!
//! Each [`Fault`] sits where a real mistake of that kind would, behind `if planted::is(Fault::...)`. One build with the feature
//! `planted` holds all of them, and the environment variable `FAULTLINE_PLANTED` chooses the one that a process has: the same
//! test binaries and the same engine are run again and again, each time with another fault, and some check of the ordinary suite
//! must fail (harness/tests/quality/test_planted.py has the table). The variable may also name one place that says something,
//! `site:FILE:LINE`, which then says nothing: see [`is_silent`].
//!
//! Without the feature, which is how everything is built that people run, [`is`] is `false` at compile time: no name, no
//! variable and no branch is left.

macro_rules! faults {
    ($($(#[doc = $what:literal])+ $fault:ident = $name:literal,)*) => {
        /// What can be broken.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Fault { $($(#[doc = $what])+ $fault,)* }

        /// Every fault with its name.
        #[cfg(feature = "planted")]
        pub const ALL: &[(Fault, &str)] = &[$((Fault::$fault, $name),)*];
    };
}

faults! {
    /// A store persists without those before it on its line.
    IgnoreR1 = "ignore-r1",
    /// A fence alone persists everything.
    IgnoreR2 = "ignore-r2",
    /// A wide store is never torn.
    IgnoreR3 = "ignore-r3",
    /// clflush guarantees nothing, whatever follows it.
    IgnoreR4 = "ignore-r4",
    /// clwb and clflushopt need no fence.
    IgnoreR5 = "ignore-r5",
    /// A locked RMW completes no flushes.
    IgnoreR6 = "ignore-r6",
    /// A flush covers nothing when another thread made the line's newest store.
    IgnoreR7 = "ignore-r7",
    /// A non-temporal store is a plain one.
    IgnoreR8 = "ignore-r8",
    /// What truncate, punch and unlink take away can come back.
    IgnoreR9 = "ignore-r9",
    /// Truncate leaves the sequences of the lines that it cuts.
    TruncateKeepsLines = "truncate-keeps-lines",
    /// Punch leaves the sequences of the lines in the hole.
    PunchKeepsLines = "punch-keeps-lines",
    /// A file that is unlinked is still listed.
    UnlinkKeepsName = "unlink-keeps-name",
    /// A file that another one is renamed over is still listed.
    RenameKeepsOther = "rename-keeps-other",
    /// Opening the heap persists every line.
    IgnoreR10 = "ignore-r10",
    /// clflush persists at once, though it may still sit in the store buffer.
    ClflushAtOnce = "clflush-at-once",
    /// A fence of any thread completes every thread's flushes.
    AnyFence = "any-fence",
    /// A flush covers what is stored between it and its fence.
    FlushCoversLater = "flush-covers-later",
    /// A flush guarantees non-temporal units.
    FlushDecidesNonTemporal = "flush-decides-non-temporal",
    /// A sync covers what is stored while it goes on.
    SyncCoversLater = "sync-covers-later",
    /// A store across two lines bears states on the first one only.
    BirthsOnOneLine = "births-on-one-line",
    /// `exhaustive` leaves out the last state.
    SkipLastState = "skip-last-state",
    /// `sample` draws the same states at every position of every seed.
    SampleUnseeded = "sample-unseeded",
    /// `pairwise` takes the first combination for covered.
    SkipFirstCombination = "skip-first-combination",
    /// What a bound left out at a position counts as run at the next ones.
    LeftOutIsCovered = "left-out-is-covered",
    /// `complete` leaves out the last branch of a load.
    DropBranch = "drop-branch",
    /// `complete` goes on below a load with choices that it would not have seen.
    NarrowWrongly = "narrow-wrongly",
    /// What follows a recovery has no second crash.
    NoFollowUp = "no-follow-up",
    /// `complete` does not see every second unit's loads.
    SkipLoad = "skip-load",
    /// `complete` keeps choices that a risen floor excludes.
    LeafAcrossFloor = "leaf-across-floor",
    /// `complete` goes the way that a load led before its line was stored to.
    StaleSkip = "stale-skip",
    /// A second crash in a recovery is not looked at where the first one left something else to a recovery that did the same.
    AnyBegin = "any-begin",
    /// A recovery that loses a flush is taken for one that does not.
    PassByRecoveries = "pass-by-recoveries",
    /// What a recovery that was passed by loads later is taken for known.
    PassedByIsExplored = "passed-by-is-explored",
    /// `complete` keeps what recovery did before a file changed.
    ForgetFileAnswer = "forget-file-answer",
    /// Image hashes leave out names and sizes of files.
    HashWithoutFiles = "hash-without-files",
    /// Image hashes leave out where a line is.
    HashWithoutPlace = "hash-without-place",
    /// The replay server is not told of files' new sizes.
    StaleSizes = "stale-sizes",
    /// The replay server is not told of lines that go back to zeros.
    StaleLines = "stale-lines",
    /// A token's choices are taken from the other end.
    TokenFromOtherEnd = "token-from-other-end",
    /// States are judged at fences only.
    JudgeAtFences = "judge-at-fences",
    /// The last crash position is left out.
    SkipLastPosition = "skip-last-position",
    /// A worker begins its part with the heap as the last one that it explored left it.
    HeapOfAnotherPart = "heap-of-another-part",
    /// An image that was judged is not judged again when something else is expected of it.
    JudgeImageOnce = "judge-image-once",
    /// States are judged where they are born only, not when an operation returned since.
    JudgeBornOnly = "judge-born-only",
    /// A recovery is remembered for any image with as many files.
    RecoveryOfAnother = "recovery-of-another",
    /// The later stages are remembered for any image with the same first part.
    StagesOfAnother = "stages-of-another",
    /// The later stages are never run.
    FirstPartOnly = "first-part-only",
    /// What could not be known passes.
    UnknownPasses = "unknown-passes",
    /// A failure that a process of its own does not show is told all the same.
    BlindConfirmation = "blind-confirmation",
    /// Findings of one rule are one, wherever they come from.
    FindingByRule = "finding-by-rule",
    /// What stays wrong begins anew at each crash position.
    BeginsAnew = "begins-anew",
    /// A finding's state is reduced to one that breaks the rule as everything persisted does, too.
    ReduceToLasting = "reduce-to-lasting",
    /// A finding's state is reduced to one that breaks another rule.
    ReduceToAnyRule = "reduce-to-any-rule",
    /// The certificate does not say which bounds were hit.
    ForgetBounds = "forget-bounds",
    /// A signal in recovery is no violation.
    SignalPasses = "signal-passes",
    /// A time-out in recovery is no violation.
    HangPasses = "hang-passes",
    /// An overloaded machine is no reason not to pass.
    OverloadPasses = "overload-passes",
    /// Slots are counted, not compared.
    CountSlots = "count-slots",
    /// Contents are not compared, only sizes.
    SizesOnly = "sizes-only",
    /// An object is taken as filled before it is published, whatever the contract says.
    FilledBefore = "filled-before",
    /// The accounting is of the heap's first file only.
    AccountingOfOneFile = "accounting-of-one-file",
    /// Capacity is compared with the twin in which nothing pending has happened.
    WrongTwin = "wrong-twin",
    /// What the heap held before it was closed is no yardstick.
    TwinForgetsOpen = "twin-forgets-open",
    /// A pending operation is taken as returned.
    PendingIsReturned = "pending-is-returned",
    /// What objects' fields hold is not looked at.
    FieldsIgnored = "fields-ignored",
    /// That a holder points to another object than it must is no violation.
    IdentityUnchecked = "identity-unchecked",
    /// Where a stale word retains one heap block all may stay.
    RetainAll = "retain-all",
    /// What was dropped may stay though power failed while the heap was open.
    GarbageOfACrashPasses = "garbage-of-a-crash-passes",
}

/// Whether this process has the fault.
#[cfg(not(feature = "planted"))]
#[inline(always)]
pub const fn is(_: Fault) -> bool {
    false
}

#[cfg(feature = "planted")]
pub use chosen::{is, is_silent};

#[cfg(feature = "planted")]
mod chosen {
    use super::{ALL, Fault};
    use std::panic::Location;
    use std::sync::OnceLock;

    const VARIABLE: &str = "FAULTLINE_PLANTED";

    enum Chosen {
        Nothing,
        Fault(Fault),
        /// `FILE:LINE`, the file without its folders.
        Site(String),
    }

    /// An environment variable, because the same choice must reach test binaries, whose command line is not ours.
    fn chosen() -> &'static Chosen {
        static CHOSEN: OnceLock<Chosen> = OnceLock::new();
        CHOSEN.get_or_init(|| match std::env::var(VARIABLE) {
            Err(_) => Chosen::Nothing,
            Ok(name) => match (name.strip_prefix("site:"), ALL.iter().find(|(_, other)| *other == name)) {
                (Some(site), _) => Chosen::Site(site.to_owned()),
                (_, Some((fault, _))) => Chosen::Fault(*fault),
                _ => panic!("{VARIABLE}: {name:?} is no planted fault"),
            },
        })
    }

    /// Whether this process has the fault.
    pub fn is(fault: Fault) -> bool {
        matches!(chosen(), Chosen::Fault(other) if *other == fault)
    }

    /// Whether the place in the source is the one that says nothing in this process.
    pub fn is_silent(place: &Location<'_>) -> bool {
        let Chosen::Site(site) = chosen() else { return false };
        let file = place.file().rsplit('/').next().unwrap_or_default();
        *site == format!("{file}:{}", place.line())
    }
}
