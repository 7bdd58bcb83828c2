// SPDX-License-Identifier: Apache-2.0
//! What an allocator promises: the `[contract]` table of its allocator.toml. The oracle checks that and no more.

use crate::rule::RuleId;
use serde::{Deserialize, Deserializer, Serialize, de::Error};

/// Where nothing else is said, mappings have this alignment and no more, bytes.
pub(crate) const OS_PAGE_BYTES: u64 = 4096;

/// An allocator's promises. Every key is required, unknown keys are errors, and errors name the key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Contract {
    /// Whether allocation and publication are one step.
    #[serde(deserialize_with = "key::publish")]
    pub publish: Publish,
    /// When an object's content is written.
    #[serde(deserialize_with = "key::fill")]
    pub fill: Fill,
    /// Which leaks a crash may leave.
    #[serde(deserialize_with = "key::leaks")]
    pub leaks: Leaks,
    /// From when on an operation survives.
    #[serde(deserialize_with = "key::durable")]
    pub durable: Durable,
    /// Whether the heap blocks that walk reports add up to the heap.
    #[serde(deserialize_with = "key::accounting")]
    pub accounting: Accounting,
    /// How much less than its twin, in bytes, a recovered heap may hold besides what leaked; of several leaked blocks, each so much.
    #[serde(deserialize_with = "key::slack_bytes")]
    pub slack_bytes: u64,
    /// Whether the heap may be mapped at another address than it was created at.
    #[serde(deserialize_with = "key::relocatable")]
    pub relocatable: bool,
    /// Of what each address that it is mapped at is a multiple, bytes: a power of two.
    #[serde(default = "os_page", deserialize_with = "key::mapping_alignment")]
    pub mapping_alignment: u64,
    /// Kinds of corruption that recovery promises to detect (FL016).
    #[serde(deserialize_with = "key::detects")]
    pub detects: Vec<String>,
    /// Kinds of corruption of which nothing but what is damaged is lost (FL016).
    #[serde(default, deserialize_with = "key::isolates")]
    pub isolates: Vec<String>,
    /// What a creation that power cut short leaves behind.
    #[serde(deserialize_with = "key::after_failed_create")]
    pub after_failed_create: AfterFailedCreate,
    /// Whether a heap that was closed opens without recovery: a close that has returned is durable, too.
    #[serde(deserialize_with = "key::clean_close")]
    pub clean_close: bool,
    /// Whether a crash while the heap is created is promised nothing.
    #[serde(default, deserialize_with = "key::create_unsafe")]
    pub create_unsafe: bool,
    /// What becomes of an allocation for which there is no room.
    #[serde(default, deserialize_with = "key::out_of_memory")]
    pub out_of_memory: OutOfMemory,
    /// What it needs of the file system that its files lie in.
    #[serde(default, deserialize_with = "key::file_system")]
    pub file_system: FileSystem,
    /// How many threads may call the allocator at the same time, at least 1.
    #[serde(deserialize_with = "key::threads")]
    pub threads: u32,
}

impl Contract {
    /// Whether it promises to keep the rule. Most rules hold for every allocator.
    pub fn promises(&self, rule: RuleId) -> bool {
        match rule {
            RuleId::CorruptionMissed => !self.detects.is_empty() || !self.isolates.is_empty(),
            // It is judged where the workload is executed, not on a recovered heap.
            RuleId::FailsWithoutCrash => false,
            // It is a cause of what other rules say.
            RuleId::RecoverySkipped => false,
            // It is judged in long lives, of which there are few.
            RuleId::NotLasting => false,
            // It is judged where power fails in a commit.
            RuleId::TransactionInPart => false,
            _ => true,
        }
    }
}

/// Whether allocation and publication are one step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Publish {
    /// One step: link pointers, an out-parameter, a transaction.
    Atomic,
    /// Two steps: malloc, then a store to the slot; a pending free or reallocate may leave the slot dangling.
    Separate,
}

/// When an object's content is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fill {
    /// Before publication: a published object is whole.
    Before,
    /// After publication: a pending allocation may be live with unchecked content.
    After,
}

/// Which leaks a crash may leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Leaks {
    /// None.
    None,
    /// At most one heap block for each operation pending at a crash, summed over generations and threads.
    Pending,
    /// Recovery's garbage collection leaves what the roots reach; an object that a stale word reaches may stay.
    Collected,
}

/// From when on an operation survives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Durable {
    /// Once it has returned.
    OnReturn,
    /// Once a later close has returned.
    OnClose,
}

/// Whether the heap blocks that walk reports add up to the heap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Accounting {
    /// allocated + reserved + free + metadata + unusable = heap, without gap or overlap.
    Full,
    /// Nothing is promised.
    None,
}

/// What a creation that power cut short leaves behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AfterFailedCreate {
    /// A folder that open refuses with a clean error: any but corrupt, which claims damage to a complete heap.
    Error,
    /// A folder that open calls not a heap and create accepts again.
    ReCreatable,
}

/// What becomes of an allocation for which there is no room.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OutOfMemory {
    /// It answers that there is none.
    #[default]
    Answers,
    /// It ends the process.
    Ends,
}

/// What is durable of file operations that have returned: creation, sizes, names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FileSystem {
    /// All of them.
    #[default]
    Ordered,
    /// Those that were synced.
    Posix,
}

fn os_page() -> u64 {
    OS_PAGE_BYTES
}

/// Reads one value; its error names the key whatever format the contract comes in.
fn read_key<'de, T: Deserialize<'de>, D: Deserializer<'de>>(name: &str, source: D) -> Result<T, D::Error> {
    T::deserialize(source).map_err(|error| D::Error::custom(format!("contract key `{name}`: {error}")))
}

mod key {
    use super::*;

    macro_rules! readers {
        ($($name:ident: $type:ty),* $(,)?) => {
            $(pub fn $name<'de, D: Deserializer<'de>>(source: D) -> Result<$type, D::Error> {
                read_key(stringify!($name), source)
            })*
        };
    }

    readers! {
        publish: Publish,
        fill: Fill,
        leaks: Leaks,
        durable: Durable,
        accounting: Accounting,
        slack_bytes: u64,
        relocatable: bool,
        after_failed_create: AfterFailedCreate,
        clean_close: bool,
        create_unsafe: bool,
        out_of_memory: OutOfMemory,
        file_system: FileSystem,
    }

    pub fn detects<'de, D: Deserializer<'de>>(source: D) -> Result<Vec<String>, D::Error> {
        kinds("detects", source)
    }

    pub fn isolates<'de, D: Deserializer<'de>>(source: D) -> Result<Vec<String>, D::Error> {
        kinds("isolates", source)
    }

    fn kinds<'de, D: Deserializer<'de>>(key: &str, source: D) -> Result<Vec<String>, D::Error> {
        let kinds: Vec<String> = read_key(key, source)?;
        let is_word = |kind: &String| !kind.is_empty() && kind.bytes().all(|b| b.is_ascii_lowercase() || b == b'-');
        match kinds.iter().find(|kind| !is_word(kind)) {
            Some(kind) => Err(D::Error::custom(format!(
                "contract key `{key}`: `{kind}` is not a kind of corruption: expected lower-case words joined by `-`"
            ))),
            None => Ok(kinds),
        }
    }

    pub fn mapping_alignment<'de, D: Deserializer<'de>>(source: D) -> Result<u64, D::Error> {
        match read_key("mapping_alignment", source)? {
            bytes if u64::is_power_of_two(bytes) && bytes >= OS_PAGE_BYTES => Ok(bytes),
            bytes => Err(D::Error::custom(format!(
                "contract key `mapping_alignment`: {bytes}: expected a power of two of at least {OS_PAGE_BYTES}"
            ))),
        }
    }

    pub fn threads<'de, D: Deserializer<'de>>(source: D) -> Result<u32, D::Error> {
        match read_key("threads", source)? {
            0 => Err(D::Error::custom("contract key `threads`: 0 is too few: expected at least 1")),
            threads => Ok(threads),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn valid() -> Value {
        json!({"publish": "atomic", "fill": "before", "leaks": "none", "durable": "on-return", "accounting": "full",
               "slack_bytes": 0, "relocatable": true, "mapping_alignment": 65536, "detects": [], "isolates": [], "after_failed_create": "error", "clean_close": true, "create_unsafe": true,
               "out_of_memory": "answers", "file_system": "ordered", "threads": 1})
    }

    fn error_with(key: &str, value: Value) -> String {
        let mut table = valid();
        table[key] = value;
        serde_json::from_value::<Contract>(table).unwrap_err().to_string()
    }

    #[test]
    fn every_value_of_every_key_is_read_and_written_alike() {
        let choices = [
            ("publish", vec!["atomic", "separate"]),
            ("fill", vec!["before", "after"]),
            ("leaks", vec!["none", "pending", "collected"]),
            ("durable", vec!["on-return", "on-close"]),
            ("accounting", vec!["full", "none"]),
            ("after_failed_create", vec!["error", "re-creatable"]),
            ("out_of_memory", vec!["answers", "ends"]),
            ("file_system", vec!["ordered", "posix"]),
        ];
        for (key, values) in choices {
            for value in values {
                let mut table = valid();
                table[key] = json!(value);
                let contract: Contract = serde_json::from_value(table.clone()).unwrap();
                assert_eq!(serde_json::to_value(contract).unwrap(), table);
            }
        }
    }

    #[test]
    fn a_bad_value_is_refused_by_the_name_of_its_key() {
        let bad = [
            ("publish", json!("maybe")),
            ("fill", json!(1)),
            ("leaks", json!("some")),
            ("durable", json!("never")),
            ("accounting", json!(true)),
            ("slack_bytes", json!(-1)),
            ("relocatable", json!("yes")),
            ("mapping_alignment", json!(65537)),
            ("mapping_alignment", json!(64)),
            ("detects", json!(["Bit Flip"])),
            ("isolates", json!(["Bit Flip"])),
            ("after_failed_create", json!("recreatable")),
            ("clean_close", json!("always")),
            ("out_of_memory", json!("aborts")),
            ("file_system", json!("ext4")),
            ("threads", json!(0)),
        ];
        for (key, value) in bad {
            let error = error_with(key, value);
            assert!(error.contains(&format!("`{key}`")), "{error}");
        }
    }

    #[test]
    fn an_unknown_key_and_a_missing_key_are_refused_by_name() {
        assert!(error_with("leeks", json!("none")).contains("`leeks`"));
        let mut table = valid();
        table.as_object_mut().unwrap().remove("fill");
        assert!(serde_json::from_value::<Contract>(table).unwrap_err().to_string().contains("`fill`"));
    }
}
