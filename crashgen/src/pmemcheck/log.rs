// SPDX-License-Identifier: Apache-2.0
//! The log as records.

use std::path::{Path, PathBuf};

/// No file is larger: more than a process can map.
const FILE_BYTES: u64 = 1 << 50;

/// Why a file is no log that can be imported.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum LogError {
    #[error("{path}: cannot be read: {source}")]
    Io { path: PathBuf, source: std::io::Error },
    #[error(
        "{path}: not a store log of pmemcheck: expected START at its begin; take one with valgrind --tool=pmemcheck -q --log-stores=yes --log-file=FILE"
    )]
    NotALog { path: PathBuf },
    #[error("{path}: Valgrind's own messages stand before START: the log was taken without -q; take it again with -q")]
    NotQuiet { path: PathBuf },
    #[error("{path}: cut: it has no STOP at its end; take it again, and let the program come to its end")]
    Cut { path: PathBuf },
    #[error("{path}: record {number} is {record:?}: {what}")]
    Record { path: PathBuf, number: usize, record: String, what: String },
    #[error("{path}: {what}")]
    Base { path: PathBuf, what: String },
}

pub(super) type Result<T> = std::result::Result<T, LogError>;

/// One record; addresses are of the traced process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Record<'a> {
    File {
        path: &'a str,
        address: u64,
        bytes: u64,
        offset: u64,
    },
    Store {
        address: u64,
        value: u64,
        bytes: usize,
        stack: &'a str,
    },
    Flush {
        address: u64,
        bytes: u64,
    },
    Fence,
    DeepSync,
    /// Emitted by the program: its name, whether it begins, and what follows its name.
    Marker {
        name: &'a str,
        is_begin: bool,
        arguments: &'a str,
    },
}

/// A whole log.
#[derive(Debug, Default)]
pub(super) struct Log<'a> {
    pub records: Vec<Record<'a>>,
    /// Kinds of stores that pmemcheck met and did not record.
    pub untraced: usize,
    /// Other messages of Valgrind among the records.
    pub messages: Vec<&'a str>,
}

impl<'a> Log<'a> {
    /// `path` is for messages.
    pub fn parse(path: &Path, text: &'a str) -> Result<Self> {
        let pieces = pieces(path, text)?;
        let mut log = Self::default();
        pieces[0].lines().for_each(|line| log.note(line));
        for (number, piece) in pieces.into_iter().enumerate().skip(1) {
            let (record, said) = split_messages(piece);
            said.lines().for_each(|line| log.note(line));
            let wrong = |what: &str| {
                let record = record.chars().take(80).collect();
                LogError::Record { path: path.into(), number, record, what: what.to_owned() }
            };
            log.records.push(parse(record).map_err(wrong)?);
        }
        Ok(log)
    }

    /// A line of what Valgrind said among the records.
    fn note(&mut self, line: &'a str) {
        let text = message_prefix(line).map_or(line, |bytes| &line[bytes..]).trim();
        match text.starts_with("Unable to trace store") {
            _ if text.is_empty() => {}
            true => self.untraced += 1,
            false => self.messages.push(text),
        }
    }
}

/// What lies between START and STOP, which begins with what was said before the first record. Behind STOP pmemcheck prints its summary, if it is asked to.
fn pieces<'a>(path: &Path, text: &'a str) -> Result<Vec<&'a str>> {
    let path = || path.into();
    let text = text.trim_start();
    let prefix = message_prefix(text).unwrap_or(0); // Valgrind puts it before its first line, with -q, too
    let Some(text) = text[prefix..].trim_start().strip_prefix("START") else {
        let is_message = prefix > 0 && text.contains("START|");
        return Err(if is_message { LogError::NotQuiet { path: path() } } else { LogError::NotALog { path: path() } });
    };
    let mut pieces: Vec<&str> = text.split('|').collect();
    if !pieces[0].trim().is_empty() && message_prefix(pieces[0].trim()).is_none() {
        return Err(LogError::NotALog { path: path() });
    }
    let is_stop = |piece: &&str| split_messages(piece).0.lines().next().is_some_and(|line| line.trim() == "STOP");
    let Some(stop) = pieces.iter().position(|piece| is_stop(&piece.trim_start())) else {
        return Err(LogError::Cut { path: path() });
    };
    if stop + 1 < pieces.len() {
        let record = pieces[stop + 1].chars().take(80).collect();
        let what = "it comes after STOP: the log is of several processes; take one of each (--log-file=NAME.%p)";
        return Err(LogError::Record { path: path(), number: stop + 1, record, what: what.to_owned() });
    }
    pieces.truncate(stop);
    Ok(pieces)
}

/// The record, and what Valgrind said behind it: from `==PID== ` on.
fn split_messages(piece: &str) -> (&str, &str) {
    let marks = piece.match_indices(['=', '-', '*']).map(|(at, _)| at);
    let mut starts = marks.filter(|at| message_prefix(&piece[*at..]).is_some());
    let at = starts.next().unwrap_or(piece.len());
    (piece[..at].trim_end(), &piece[at..])
}

/// Length of `==PID== ` (or with `--`, `**`) at the begin of the text.
fn message_prefix(text: &str) -> Option<usize> {
    let mark = ["==", "--", "**"].into_iter().find(|mark| text.starts_with(mark))?;
    let digits = text[2..].find(|character: char| !character.is_ascii_digit())?;
    (digits > 0 && text[2 + digits..].starts_with(mark)).then_some(digits + 4)
}

/// The error says what was expected.
fn parse(record: &str) -> std::result::Result<Record<'_>, &'static str> {
    let (name, rest) = record.split_once(';').unwrap_or((record, ""));
    match name {
        "STORE" => store(rest),
        "FLUSH" => {
            let (address, bytes) = rest.split_once(';').ok_or("expected FLUSH;ADDRESS;BYTES")?;
            Ok(Record::Flush { address: hexadecimal(address)?, bytes: hexadecimal(bytes)? })
        }
        "FENCE" if rest.is_empty() => Ok(Record::Fence),
        "REGISTER_FILE" => file(rest),
        "DEEP_SYNC" => Ok(Record::DeepSync),
        _ => marker(name, rest),
    }
}

fn store(rest: &str) -> std::result::Result<Record<'_>, &'static str> {
    let expected = "expected STORE;ADDRESS;VALUE;BYTES";
    let mut parts = rest.splitn(4, ';');
    let mut next = || parts.next().ok_or(expected);
    let (address, value, bytes) = (hexadecimal(next()?)?, hexadecimal(next()?)?, hexadecimal(next()?)?);
    let stack = parts.next().unwrap_or("");
    if bytes == 0 || bytes > super::VALUE_BYTES as u64 {
        return Err("expected a store of 1 to 8 bytes");
    }
    Ok(Record::Store { address, value, bytes: bytes as usize, stack })
}

/// A path may hold semicolons.
fn file(rest: &str) -> std::result::Result<Record<'_>, &'static str> {
    let mut parts = rest.rsplitn(4, ';');
    let mut next = || parts.next().ok_or("expected REGISTER_FILE;PATH;ADDRESS;BYTES;OFFSET");
    let (offset, bytes, address) = (hexadecimal(next()?)?, hexadecimal(next()?)?, hexadecimal(next()?)?);
    let path = next()?;
    if path.split('/').any(|part| matches!(part, "." | ".."))
        || path.ends_with('/')
        || path.is_empty()
        || path.contains('\0')
    {
        return Err("expected the path of a file, without `.` and `..`");
    }
    if address.checked_add(bytes).is_none() || offset.checked_add(bytes).is_none_or(|end| end > FILE_BYTES) {
        return Err("expected a range of a file that a process can map");
    }
    Ok(Record::File { path, address, bytes, offset })
}

fn marker<'a>(name: &'a str, arguments: &'a str) -> std::result::Result<Record<'a>, &'static str> {
    let begins = name.strip_suffix(".BEGIN").map(|name| (name, true));
    let ends = || name.strip_suffix(".END").map(|name| (name, false));
    match begins.or_else(ends) {
        Some((name, is_begin)) => Ok(Record::Marker { name, is_begin, arguments }),
        None => {
            Err("pmemcheck 1.0 writes no such record: the log is of another version, or was damaged; take it again")
        }
    }
}

fn hexadecimal(text: &str) -> std::result::Result<u64, &'static str> {
    let digits = text.strip_prefix("0x").unwrap_or(text);
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    let number = if is_number { u64::from_str_radix(digits, 16).ok() } else { None };
    number.ok_or("expected hexadecimal numbers of at most 64 bits")
}
