// SPDX-License-Identifier: Apache-2.0
//! How a server is started.

use std::path::PathBuf;
use std::process::Command;

/// How to start a server.
#[derive(Clone, Debug)]
#[allow(missing_docs)]
pub struct ServerOptions {
    pub runner: PathBuf,
    /// What the runner is started under, with its arguments: a tracer that sees all accesses. Empty: nothing.
    pub tracer: Vec<String>,
    pub adapter: PathBuf,
    /// Folder for the base image, on a memory file system if there is one.
    pub scratch: PathBuf,
    pub heap_bytes: u64,
    pub limit_bytes: u64,
    pub slots: u32,
    /// Word for the layout of those slots (`runner --slot-layout`).
    pub slot_layout: String,
    pub address_hint: u64,
    pub cpu_limit_ms: u64,
    pub wall_limit_ms: u64,
    /// The adapter has hooks: runs need no process of their own.
    pub is_in_process: bool,
    /// The adapter has no hooks, and first parts of the probe need no process of their own all the same.
    pub is_batched: bool,
    /// The probe leaves out the stage `check`.
    pub is_unchecked: bool,
    /// The target ends the process when memory is out.
    pub ends_when_full: bool,
    /// Chooses the in-process runs that are compared with isolated ones.
    pub seed: u64,
}

impl ServerOptions {
    /// `runner COMMAND` with these options.
    pub fn command(&self, command: &str) -> Command {
        let mut process = match self.tracer.split_first() {
            Some((program, arguments)) => {
                let mut process = Command::new(program);
                process.args(arguments).arg(&self.runner);
                process
            }
            None => Command::new(&self.runner),
        };
        process.arg(command).arg("--adapter").arg(&self.adapter).arg("--folder").arg(&self.scratch);
        process.arg("--slot-layout").arg(&self.slot_layout);
        for (name, value) in [
            ("--heap-bytes", self.heap_bytes),
            ("--limit-bytes", self.limit_bytes),
            ("--slots", u64::from(self.slots)),
            ("--address-hint", self.address_hint),
        ] {
            process.arg(name).arg(value.to_string());
        }
        if self.ends_when_full {
            process.arg("--ends-when-full");
        }
        process
    }
}
