// SPDX-License-Identifier: Apache-2.0
//! Tokens: a crash state in one printable word, with all that is needed to make it again.
//!
//! `fl1.` and base64url of: fields in order (numbers as LEB128, texts as length and bytes, hashes in binary), then CRC-32 of
//! what precedes it.
//! A token is input from outside: decoding never panics.

use crate::model::Choice;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

const PREFIX: &str = "fl1.";

/// What a token names: the cell, the trace, and the state both by position and by operation.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(default)]
#[allow(missing_docs)]
pub struct Witness {
    pub rule: String,
    pub allocator: String,
    pub mutant: String,
    /// Hash of the build: sources, flags, compiler.
    pub build: String,
    pub workload: String,
    pub ops: u32,
    pub seed: u64,
    pub flush: String,
    pub model: String,
    pub trace_hash: String,
    /// Crash position: number of events before it.
    pub position: u32,
    /// Operation index that was running or had returned last, plus one; 0 before the first.
    pub operation: u32,
    /// Events of the trace since that operation began.
    pub event_in_operation: u32,
    /// Function of the last store before the position.
    pub site: String,
    /// Choices are relative to everything persisted instead of to the floor.
    pub from_newest: bool,
    /// Only a long life after the crash shows it.
    pub is_of_long_life: bool,
    /// File operations that power failure lost: numbers of the events at which they returned.
    pub lost: Vec<u32>,
    /// Lines that differ: file (index in the trace's file table), line number, choice.
    pub lines: Vec<LineChoice>,
    /// Crashes after that one, each in the recovery from the one before it or in its follow-up.
    pub later: Vec<LaterCrash>,
}

/// A crash in what a recovery did.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[allow(missing_docs)]
pub struct LaterCrash {
    /// Number of the recovery's events before it.
    pub position: u32,
    pub from_newest: bool,
    pub lines: Vec<LineChoice>,
}

/// One line's choice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[allow(missing_docs)]
pub struct LineChoice {
    pub file: u32,
    pub number: u64,
    pub ordered: u32,
    pub floating: u64,
}

impl LineChoice {
    /// As the model counts it.
    pub fn choice(&self) -> Choice {
        Choice { base: 0, ordered: self.ordered, floating: self.floating }
    }
}

/// Why a text is no token.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("not a token: {0}; copy the whole word after `faultline replay`")]
pub struct TokenError(pub &'static str);

impl Witness {
    /// The token.
    pub fn encode(&self) -> String {
        let mut bytes = Vec::new();
        for text in self.texts() {
            put(&mut bytes, text.len() as u64);
            bytes.extend(text.as_bytes());
        }
        for hash in [&self.build, &self.trace_hash] {
            put_hash(&mut bytes, hash);
        }
        put(&mut bytes, u64::from(self.ops));
        put(&mut bytes, self.seed);
        for number in [
            self.position,
            self.operation,
            self.event_in_operation,
            u32::from(self.from_newest) | u32::from(self.is_of_long_life) << 1 | u32::from(!self.lost.is_empty()) << 2,
        ] {
            put(&mut bytes, u64::from(number));
        }
        if !self.lost.is_empty() {
            put(&mut bytes, self.lost.len() as u64);
            self.lost.iter().for_each(|number| put(&mut bytes, u64::from(*number)));
        }
        put(&mut bytes, self.lines.len() as u64);
        put_lines(&mut bytes, &self.lines);
        for crash in &self.later {
            let numbers = [crash.position, u32::from(crash.from_newest), crash.lines.len() as u32];
            numbers.into_iter().for_each(|number| put(&mut bytes, number.into()));
            put_lines(&mut bytes, &crash.lines);
        }
        Self::seal(&bytes)
    }

    /// The token of these fields: the checksum after them, all as text.
    pub fn seal(fields: &[u8]) -> String {
        let sealed = [fields, &crc32fast::hash(fields).to_le_bytes()].concat();
        format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(sealed))
    }

    fn texts(&self) -> [&String; 7] {
        [&self.rule, &self.allocator, &self.mutant, &self.workload, &self.flush, &self.model, &self.site]
    }

    /// Reads a token.
    ///
    /// # Errors
    /// When it is damaged or of another version.
    pub fn decode(token: &str) -> Result<Self, TokenError> {
        let body = token.trim().strip_prefix(PREFIX).ok_or(TokenError("expected `fl1.` at its start"))?;
        let bytes = URL_SAFE_NO_PAD.decode(body).map_err(|_| TokenError("a character that tokens do not have"))?;
        let (fields, sum) = bytes.split_last_chunk::<4>().ok_or(TokenError("too short"))?;
        if crc32fast::hash(fields) != u32::from_le_bytes(*sum) {
            return Err(TokenError("its checksum is wrong"));
        }
        let mut rest = fields;
        let mut text = || -> Result<String, TokenError> {
            let length = usize::try_from(take(&mut rest)?).map_err(|_| TokenError("a length is wrong"))?;
            let (text, tail) = rest.split_at_checked(length).ok_or(TokenError("a length is wrong"))?;
            rest = tail;
            String::from_utf8(text.to_vec()).map_err(|_| TokenError("a text is not UTF-8"))
        };
        let mut witness = Self {
            rule: text()?,
            allocator: text()?,
            mutant: text()?,
            workload: text()?,
            flush: text()?,
            model: text()?,
            site: text()?,
            ..Self::default()
        };
        witness.build = take_hash(&mut rest)?;
        witness.trace_hash = take_hash(&mut rest)?;
        witness.ops = take_u32(&mut rest)?;
        witness.seed = take(&mut rest)?;
        witness.position = take_u32(&mut rest)?;
        witness.operation = take_u32(&mut rest)?;
        witness.event_in_operation = take_u32(&mut rest)?;
        let flags = take(&mut rest)?;
        (witness.from_newest, witness.is_of_long_life) = (flags & 1 != 0, flags & 2 != 0);
        if flags & 4 != 0 {
            for _ in 0..take(&mut rest)? {
                witness.lost.push(take_u32(&mut rest)?);
            }
        }
        witness.lines = take_lines(&mut rest)?;
        while !rest.is_empty() {
            let (position, from_newest) = (take_u32(&mut rest)?, take(&mut rest)? != 0);
            witness.later.push(LaterCrash { position, from_newest, lines: take_lines(&mut rest)? });
        }
        Ok(witness)
    }
}

fn put_lines(bytes: &mut Vec<u8>, lines: &[LineChoice]) {
    for line in lines {
        let numbers = [line.file.into(), line.number, line.ordered.into(), line.floating];
        numbers.into_iter().for_each(|number| put(bytes, number));
    }
}

fn take_lines(rest: &mut &[u8]) -> Result<Vec<LineChoice>, TokenError> {
    let mut lines = Vec::new();
    for _ in 0..take(rest)? {
        lines.push(LineChoice {
            file: take_u32(rest)?,
            number: take(rest)?,
            ordered: take_u32(rest)?,
            floating: take(rest)?,
        });
    }
    Ok(lines)
}

fn put(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

/// A hash in hexadecimal as its bytes; any other text as it is. The lowest bit of the length tells which.
fn put_hash(bytes: &mut Vec<u8>, hash: &str) {
    let digits = hash.as_bytes();
    let is_hash = digits.len() % 2 == 0 && digits.iter().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'));
    let value = |digit: u8| if digit <= b'9' { digit - b'0' } else { digit - b'a' + 10 };
    put(bytes, (digits.len() as u64) << 1 | u64::from(is_hash));
    match is_hash {
        true => bytes.extend(digits.chunks_exact(2).map(|pair| value(pair[0]) << 4 | value(pair[1]))),
        false => bytes.extend(digits),
    }
}

fn take_hash(rest: &mut &[u8]) -> Result<String, TokenError> {
    let head = take(rest)?;
    let is_hash = head & 1 == 1;
    let length = usize::try_from(head >> if is_hash { 2 } else { 1 }).map_err(|_| TokenError("a length is wrong"))?;
    let (bytes, tail) = rest.split_at_checked(length).ok_or(TokenError("a length is wrong"))?;
    *rest = tail;
    match is_hash {
        true => Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect()),
        false => String::from_utf8(bytes.to_vec()).map_err(|_| TokenError("a text is not UTF-8")),
    }
}

fn take(rest: &mut &[u8]) -> Result<u64, TokenError> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let (byte, tail) = rest.split_first().ok_or(TokenError("too short"))?;
        *rest = tail;
        let bits = u64::from(byte & 0x7f);
        if bits << shift >> shift != bits {
            break;
        }
        number |= bits << shift;
        if byte & 0x80 == 0 {
            return Ok(number);
        }
    }
    Err(TokenError("a number is too long"))
}

fn take_u32(rest: &mut &[u8]) -> Result<u32, TokenError> {
    u32::try_from(take(rest)?).map_err(|_| TokenError("a number is too large"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn witness() -> Witness {
        let line = LineChoice { file: 1, number: 1 << 40, ordered: 3, floating: u64::MAX };
        Witness {
            rule: "FL004".into(),
            allocator: "nvm_malloc".into(),
            build: "odd".into(),
            trace_hash: "00ff1a".repeat(8),
            seed: u64::MAX,
            position: 77,
            from_newest: true,
            is_of_long_life: true,
            lost: vec![5, 70],
            lines: vec![line],
            later: vec![LaterCrash { position: 3, from_newest: true, lines: vec![line, line] }, LaterCrash::default()],
            ..Witness::default()
        }
    }

    #[test]
    fn a_token_gives_its_witness_back() {
        assert_eq!(Witness::decode(&witness().encode()), Ok(witness()));
    }

    #[test]
    fn each_flag_is_its_own() {
        for (from_newest, is_of_long_life, lost) in
            [(false, false, vec![]), (true, false, vec![]), (false, true, vec![]), (false, false, vec![0])]
        {
            let witness = Witness { from_newest, is_of_long_life, lost, ..witness() };
            assert_eq!(Witness::decode(&witness.encode()), Ok(witness));
        }
    }

    #[test]
    fn every_damaged_character_is_noticed() {
        let token = witness().encode();
        for at in 0..token.len() {
            let mut damaged = token.clone().into_bytes();
            damaged[at] = if damaged[at] == b'A' { b'B' } else { b'A' };
            assert!(Witness::decode(std::str::from_utf8(&damaged).expect("ASCII")).is_err(), "character {at}");
            assert!(Witness::decode(&token[..at]).is_err(), "cut at {at}");
        }
    }
}
