// SPDX-License-Identifier: Apache-2.0
//! Assembly as text, cut into statements. What an instruction is, the text is never asked.

/// What the bytes of a statement are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// An instruction, data, or a block of repeated statements: it has a label of ours.
    Bytes,
    /// Data between functions or for jumps: no instruction, but in inline assembly.
    Data,
    /// Padding.
    Padding,
    /// Nothing that an instruction could be in.
    Nothing,
}

/// `labels`, `body` and `tail` of all statements, one after the other, are the source.
#[derive(Clone, Debug)]
pub struct Statement<'a> {
    /// Labels, each with its colon, and what stands around them.
    pub labels: &'a [u8],
    /// The rest; a block of repeated statements is one body.
    pub body: &'a [u8],
    /// Separator and comments.
    pub tail: &'a [u8],
    /// What it is.
    pub kind: Kind,
    /// Of inline assembly, or of a source that no compiler made: no compiler announces what it does.
    pub is_assembly: bool,
    /// The directive for Intel's syntax, where it is in force.
    pub intel: Option<&'a [u8]>,
}

const DATA: [&str; 32] = [
    ".byte", ".2byte", ".4byte", ".8byte", ".word", ".short", ".hword", ".value", ".int", ".long", ".quad", ".octa",
    ".insn", ".ascii", ".asciz", ".string", ".zero", ".fill", ".skip", ".space", ".nop", ".nops", ".incbin", ".single",
    ".float", ".double", ".uleb128", ".sleb128", ".dc.b", ".dc.l", ".dcb", ".ds",
];
const PADDING: [&str; 8] = [".p2align", ".p2alignw", ".p2alignl", ".align", ".balign", ".balignw", ".balignl", ".org"];
const REPEATS: [&str; 4] = [".rept", ".rep", ".irp", ".irpc"];

/// Label of ours in front of the statement with that number.
pub const LABEL: &str = "fl.";

/// The source's statements.
pub fn split(text: &[u8]) -> Vec<Statement<'_>> {
    let is_compiled = text.starts_with(b"\t.file\t\"") || find(text, b"\t.ident\t\"").is_some();
    let (mut statements, mut is_inline, mut intel, mut macros) = (Vec::new(), false, None, 0_u32);
    let mut at = 0;
    while at < text.len() {
        let (mut end, mut next) = end_of_statement(text, at);
        let (mut labels, mut body) = take_labels(&text[at..end]);
        let word = first_word(body);
        match marker(&text[at..next]) {
            Some(is_begin) => is_inline = is_begin,
            None if REPEATS.contains(&word.as_str()) && macros == 0 => {
                (end, next) = end_of_block(text, next);
                (labels, body) = take_labels(&text[at..end]);
            }
            None => {}
        }
        let kind = if macros > 0 { Kind::Nothing } else { kind_of(&word, body) };
        match word.as_str() {
            ".macro" => macros += 1,
            ".endm" => macros = macros.saturating_sub(1),
            ".intel_syntax" => intel = Some(body),
            ".att_syntax" => intel = None,
            _ => {}
        }
        let is_assembly = is_inline || !is_compiled;
        statements.push(Statement { labels, body, tail: &text[end..next], kind, is_assembly, intel });
        at = next;
    }
    statements
}

/// The source with a label at each statement that has bytes.
pub fn labelled(statements: &[Statement<'_>]) -> Vec<u8> {
    let mut text = Vec::new();
    for (number, statement) in statements.iter().enumerate() {
        text.extend_from_slice(statement.labels);
        if statement.kind != Kind::Nothing {
            text.extend_from_slice(format!("{LABEL}{number}: ").as_bytes());
        }
        text.extend_from_slice(statement.body);
        text.extend_from_slice(statement.tail);
    }
    text
}

fn find(text: &[u8], what: &[u8]) -> Option<usize> {
    text.windows(what.len()).position(|window| window == what)
}

/// Whether the line says that inline assembly begins, or that it is over.
fn marker(line: &[u8]) -> Option<bool> {
    match line.trim_ascii() {
        b"#APP" => Some(true),
        b"#NO_APP" => Some(false),
        _ => None,
    }
}

/// Where the statement ends that begins there, and where the next one begins: a comment is neither's body.
fn end_of_statement(text: &[u8], begin: usize) -> (usize, usize) {
    let line_end = |at: usize| text[at..].iter().position(|byte| *byte == b'\n').map_or(text.len(), |end| at + end);
    let mut at = begin;
    while at < text.len() {
        match text[at] {
            b'\n' | b';' => return (at, at + 1),
            b'#' => return (at, (line_end(at) + 1).min(text.len())),
            b'/' if text[begin..at].trim_ascii().is_empty() && text.get(at + 1) != Some(&b'*') => {
                return (at, (line_end(at) + 1).min(text.len()));
            }
            b'/' if text.get(at + 1) == Some(&b'*') => {
                at = find(&text[at + 2..], b"*/").map_or(text.len(), |end| at + 2 + end + 2);
            }
            b'"' => at = end_of_string(text, at + 1),
            b'\'' => at += 2, // the character itself may be a separator
            _ => at += 1,
        }
    }
    (text.len(), text.len())
}

fn end_of_string(text: &[u8], begin: usize) -> usize {
    let mut at = begin;
    while at < text.len() && text[at] != b'"' && text[at] != b'\n' {
        at += if text[at] == b'\\' { 2 } else { 1 };
    }
    (at + 1).min(text.len())
}

/// Of a block of repeated statements whose first one ends there: behind `.endr`, and where the next statement begins.
fn end_of_block(text: &[u8], begin: usize) -> (usize, usize) {
    let (mut at, mut depth) = (begin, 1);
    while at < text.len() {
        let (end, next) = end_of_statement(text, at);
        let word = first_word(take_labels(&text[at..end]).1);
        if REPEATS.contains(&word.as_str()) {
            depth += 1;
        } else if word == ".endr" {
            depth -= 1;
        }
        if depth == 0 {
            return (end, next);
        }
        at = next;
    }
    (text.len(), text.len())
}

fn take_labels(statement: &[u8]) -> (&[u8], &[u8]) {
    let is_of_name = |byte: &u8| byte.is_ascii_alphanumeric() || b"_.$@".contains(byte);
    let mut at = 0;
    loop {
        let rest = &statement[at..];
        let space = rest.len() - rest.trim_ascii_start().len();
        let name = &rest[space..];
        let length = match name.first() {
            Some(b'"') => end_of_string(name, 1),
            _ => name.iter().position(|byte| !is_of_name(byte)).unwrap_or(name.len()),
        };
        let behind = name[length..].trim_ascii_start();
        let is_label = length > 0 && behind.first() == Some(&b':') && behind.get(1) != Some(&b':');
        if !is_label {
            return statement.split_at(at + space);
        }
        at += rest.len() - behind.len() + 1;
    }
}

fn first_word(body: &[u8]) -> String {
    let end = body.iter().position(|byte| byte.is_ascii_whitespace()).unwrap_or(body.len());
    String::from_utf8_lossy(&body[..end]).to_ascii_lowercase()
}

fn kind_of(word: &str, body: &[u8]) -> Kind {
    let rest = body.get(word.len()..).unwrap_or_default().trim_ascii_start();
    match word {
        "" => Kind::Nothing,
        _ if REPEATS.contains(&word) => Kind::Bytes,
        _ if DATA.contains(&word) => Kind::Data,
        _ if PADDING.contains(&word) => Kind::Padding,
        _ if word.starts_with('.') || word.contains('=') || rest.first() == Some(&b'=') => Kind::Nothing,
        _ => Kind::Bytes,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bodies(text: &str) -> Vec<(String, bool)> {
        let statements = split(text.as_bytes());
        let whole: Vec<u8> = statements.iter().flat_map(|s| [s.labels, s.body, s.tail].concat()).collect();
        assert_eq!(whole, text.as_bytes(), "nothing is lost");
        let with_bytes = statements.iter().filter(|statement| statement.kind != Kind::Nothing);
        with_bytes.map(|s| (String::from_utf8_lossy(s.body).trim().to_owned(), s.is_assembly)).collect()
    }

    #[test]
    fn statements_end_at_separators_that_are_none_of_a_string_or_comment() {
        let text = "\t.file\t\"a.c\"\n1: lock; incl (%rax) # a; b\n\t.ascii \"x;\\\";#\"; nop /* ; */; ret\nx = 5\n";
        let found: Vec<String> = bodies(text).into_iter().map(|(body, _)| body).collect();
        assert_eq!(found, ["lock", "incl (%rax)", ".ascii \"x;\\\";#\"", "nop /* ; */", "ret"]);
    }

    #[test]
    fn markers_say_what_is_inline() {
        let text =
            "\t.file\t\"a.c\"\n\tmovl %eax, (%rdx)\n#APP\n# 5 \"a.c\" 1\n\tclwb (%rax)\n# 0 \"\" 2\n#NO_APP\n\tret\n";
        let found: Vec<bool> = bodies(text).into_iter().map(|(_, is_assembly)| is_assembly).collect();
        assert_eq!(found, [false, true, false]);
        assert!(bodies("f: ret\n")[0].1, "no compiler made that");
    }

    #[test]
    fn a_repeated_block_is_one_statement_and_a_macro_none() {
        let text = ".macro m\n nop\n.endm\n.rept 3\n.rept 2\nnop\n.endr\n.endr\nm\n";
        let found: Vec<String> = bodies(text).into_iter().map(|(body, _)| body).collect();
        assert_eq!(found, [".rept 3\n.rept 2\nnop\n.endr\n.endr", "m"]);
    }

    #[test]
    fn labels_are_no_part_of_a_body() {
        let statements = split(b".L1: a$b: 1:\tmovq %fs:0, %rax\n");
        assert_eq!(statements[0].body, b"movq %fs:0, %rax");
        assert_eq!(labelled(&statements), b".L1: a$b: 1:\tfl.0: movq %fs:0, %rax\n");
    }
}
