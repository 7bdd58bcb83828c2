// SPDX-License-Identifier: Apache-2.0
//! Where a recovery died of a signal or hung, read from the runner (`FL_RUN_DEATH` in `runner/protocol.h`).

use super::protocol::{
    DEATH_BYTES, DEATH_CALL_BYTES, HUNG_ASLEEP, HUNG_BUSY, PROTOCOL_VERSION, TOUCHED_BEFORE, TOUCHED_BEHIND,
    TOUCHED_FILE, TOUCHED_NEAR_NULL, TOUCHED_NO_ADDRESS, TOUCHED_NOTHING, TOUCHED_UNMAPPED,
};
use std::path::PathBuf;

/// The address of a SIGSEGV or SIGBUS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Touched {
    /// The signal has none.
    Nothing,
    /// In a mapping of a heap file, at this offset of the file.
    File(Option<String>, u64),
    /// So many bytes behind the end of a mapping of one.
    Behind(Option<String>, u64),
    /// So many bytes before the start of one.
    Before(Option<String>, u64),
    /// An address close to null.
    NearNull(u64),
    /// An address where nothing is mapped, or nothing that may be accessed in this way.
    Unmapped,
    /// A number that is no address.
    NotCanonical,
}

/// How a life hung.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hung {
    /// It used up its limit of processor time.
    Busy,
    /// It waited for what did not come.
    Asleep,
}

/// Where a life died or hung.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Death {
    /// Of which address.
    pub touched: Touched,
    /// None: it died.
    pub hung: Option<Hung>,
    /// Module and offset in it, of the target: where it died or hung, then the call that led there, and so on.
    pub calls: Vec<(PathBuf, u64)>,
}

/// None: the answer is of another version. Some of none: no life died of a signal or hung, or the place is not known. `name`: of the file
/// with that number; none: recovery made the file.
#[allow(clippy::option_option)]
pub fn parse(answer: &[u8], name: impl Fn(u32) -> Option<String>) -> Option<Option<Death>> {
    let word = |bytes: &[u8], at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
    let long = |bytes: &[u8], at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
    let (header, rest) = answer.split_at_checked(DEATH_BYTES)?;
    let (list, paths) = rest.split_at_checked((word(header, 24) as usize).checked_mul(DEATH_CALL_BYTES)?)?;
    if word(header, 0) != PROTOCOL_VERSION {
        return None;
    }
    let (file, offset) = (name(word(header, 12)), long(header, 16));
    let touched = match word(header, 8) {
        TOUCHED_NOTHING => Touched::Nothing,
        TOUCHED_FILE => Touched::File(file, offset),
        TOUCHED_BEHIND => Touched::Behind(file, offset),
        TOUCHED_BEFORE => Touched::Before(file, offset),
        TOUCHED_NEAR_NULL => Touched::NearNull(offset),
        TOUCHED_UNMAPPED => Touched::Unmapped,
        TOUCHED_NO_ADDRESS => Touched::NotCanonical,
        _ => return None,
    };
    let hung = match word(header, 28) {
        0 => None,
        HUNG_BUSY => Some(Hung::Busy),
        HUNG_ASLEEP => Some(Hung::Asleep),
        _ => return None,
    };
    let paths: Vec<&[u8]> = paths.split(|byte| *byte == 0).collect();
    let call = |call: &[u8]| {
        let path = paths.get(word(call, 8) as usize)?;
        Some((PathBuf::from(String::from_utf8_lossy(path).into_owned()), long(call, 0)))
    };
    let calls = list.chunks_exact(DEATH_CALL_BYTES).map(call).collect::<Option<Vec<_>>>()?;
    Some((word(header, 4) != 0 && !calls.is_empty()).then_some(Death { touched, hung, calls }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(version: u32, signal: u32, touched: u32, calls: &[(u64, u32)]) -> Vec<u8> {
        answer_of(version, signal, (touched, 0), calls)
    }

    fn answer_of(version: u32, signal: u32, (touched, hung): (u32, u32), calls: &[(u64, u32)]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for word in [version, signal, touched, 7] {
            bytes.extend(word.to_le_bytes());
        }
        bytes.extend(24u64.to_le_bytes());
        bytes.extend((calls.len() as u32).to_le_bytes());
        bytes.extend(hung.to_le_bytes());
        for (offset, module) in calls {
            bytes.extend(offset.to_le_bytes());
            bytes.extend(u64::from(*module).to_le_bytes());
        }
        bytes.extend(b"/a.so\0/b.so\0");
        bytes
    }

    fn read(bytes: &[u8]) -> Option<Option<Death>> {
        parse(bytes, |number| (number == 7).then(|| "heap".to_owned()))
    }

    #[test]
    fn a_death_is_read() {
        let calls = vec![("/b.so".into(), 16), ("/a.so".into(), 8)];
        let death = Death { touched: Touched::Behind(Some("heap".into()), 24), hung: None, calls };
        assert_eq!(read(&answer(PROTOCOL_VERSION, 11, 2, &[(16, 1), (8, 0)])), Some(Some(death)));
    }

    #[test]
    fn a_hang_is_read() {
        for (number, hung) in [(1, Hung::Busy), (2, Hung::Asleep)] {
            let calls = vec![("/a.so".into(), 16)];
            let death = Death { touched: Touched::Nothing, hung: Some(hung), calls };
            assert_eq!(read(&answer_of(PROTOCOL_VERSION, 27, (0, number), &[(16, 0)])), Some(Some(death)));
        }
    }

    #[test]
    fn where_is_not_known_without_a_signal_or_a_call() {
        assert_eq!(read(&answer(PROTOCOL_VERSION, 0, 0, &[(16, 1)])), Some(None));
        assert_eq!(read(&answer(PROTOCOL_VERSION, 11, 4, &[])), Some(None));
    }

    #[test]
    fn what_is_of_another_version_or_cut_is_no_answer() {
        let whole = answer(PROTOCOL_VERSION, 11, 1, &[(16, 1)]);
        assert_eq!(read(&answer(PROTOCOL_VERSION + 1, 11, 1, &[(16, 1)])), None);
        assert_eq!(read(&answer(PROTOCOL_VERSION, 11, 7, &[(16, 1)])), None);
        assert_eq!(read(&answer_of(PROTOCOL_VERSION, 27, (0, 3), &[(16, 1)])), None);
        assert_eq!(read(&answer(PROTOCOL_VERSION, 11, 1, &[(16, 5)])), None);
        for length in 0..DEATH_BYTES + DEATH_CALL_BYTES {
            assert_eq!(read(&whole[..length]), None);
        }
    }
}
