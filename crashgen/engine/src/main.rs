// SPDX-License-Identifier: Apache-2.0
//! faultline-engine: explores a trace and judges what recovery makes of every crash image. The harness is its front.

mod base;
mod commands;
mod explore;
mod findings;
mod heap;
mod recovery;

use base::config::Config;
use base::error::{EngineError, bad_input};
use base::output::Output;
use clap::{Parser, Subcommand};
use commands::{
    bench, calls, damage, dump, judge, lists, litmus, places, replay, shrink, states, store_log, trace_info, yardstick,
};
use crashgen::replay::Probe;
use crashgen::symbols::Symbols;
use crashgen::token::Witness;
use crashgen::trace::{Trace, seal};
use explore::{run, trace_rules};
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(Parser)]
#[command(name = "faultline-engine", version, about)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Explore the trace that a configuration names; JSON lines on stdout.
    Explore {
        /// Configuration file (JSON).
        config: PathBuf,
    },
    /// Run one crash state.
    Replay {
        /// Configuration file (JSON).
        config: PathBuf,
        /// The state's token.
        #[arg(long)]
        token: String,
    },
    /// Print the smallest crash state of the trace that shows the finding of a token.
    Shrink {
        /// Configuration file (JSON).
        config: PathBuf,
        /// The token.
        #[arg(long)]
        token: String,
    },
    /// Judge heaps that a machine left and recovered, while it executed the workload of a trace.
    Judge {
        /// Configuration file (JSON).
        config: PathBuf,
        /// Folders, one for each time that the machine ended: its markers, the heap and the report of its recovery.
        #[arg(required = true)]
        endings: Vec<PathBuf>,
    },
    /// Recoveries a second of both engines.
    BenchReplay {
        /// Configuration file (JSON).
        config: PathBuf,
    },
    /// Append the footer to a trace whose processes are done, and print its hash.
    Seal {
        /// The trace.
        trace: PathBuf,
    },
    /// How many events of each kind a trace holds.
    TraceInfo {
        /// The trace.
        trace: PathBuf,
        /// As JSON.
        #[arg(long)]
        json: bool,
    },
    /// Print what the trace rules FL1xx say of a trace, and what its operations pay for persistency, as JSON.
    Rules {
        /// The trace.
        trace: PathBuf,
        /// Where programs and libraries that the trace names by relative paths lie.
        #[arg(long, default_value = ".")]
        module_root: PathBuf,
        /// Operations promise to be persisted only when the heap is closed: FL103 is not judged.
        #[arg(long)]
        durable_on_close: bool,
    },
    /// The places in the source of the allocator that flush or fence in a trace, as JSON.
    Places {
        /// Configuration file (JSON).
        config: PathBuf,
    },
    /// Where calls are in the source, as JSON: the innermost one that is no helper's, and its callers.
    Calls {
        /// Each as OFFSET:MODULE, the innermost one first; the offset is decimal.
        #[arg(required = true)]
        calls: Vec<String>,
        /// File whose functions act for their callers.
        #[arg(long)]
        helper: Vec<PathBuf>,
    },
    /// A trace as text, one line an event: crash position after it, process.thread, operation, kind, what, and where in the source.
    Dump {
        /// The trace.
        trace: PathBuf,
        /// Where programs and libraries that the trace names by relative paths lie.
        #[arg(long, default_value = ".")]
        module_root: PathBuf,
    },
    /// Make a trace of a store log of pmemcheck, and print what the log does not say, as JSON.
    Import {
        /// The log.
        log: PathBuf,
        /// The trace.
        out: PathBuf,
        /// What its files held before: a file, or the folder that they lie in.
        #[arg(long)]
        base: Option<PathBuf>,
    },
    /// Write a trace as a store log of pmemcheck, and print what the log cannot say, as JSON.
    Export {
        /// The trace.
        trace: PathBuf,
        /// The log.
        out: PathBuf,
        /// Where the files lie that pmreorder shall work on.
        #[arg(long)]
        folder: String,
        /// Where programs and libraries that the trace names by relative paths lie.
        #[arg(long, default_value = ".")]
        module_root: PathBuf,
    },
    /// Every image of every crash position of a small trace, as JSON lines.
    States {
        /// The trace.
        trace: PathBuf,
        /// In the place of images: what each line may hold, from this crash position on.
        #[arg(long, value_name = "POSITION")]
        lines: Option<u32>,
    },
    /// Compare complete with exhaustive on a trace; exit code 1 if they differ.
    Yardstick {
        /// Configuration file (JSON), strategy complete.
        config: PathBuf,
        /// Crash positions with more states are not compared.
        #[arg(long, default_value_t = 4096)]
        states: u64,
        /// Run the whole probe script, not its first part alone.
        #[arg(long)]
        full: bool,
    },
    /// Damage heaps of a trace, and print what recovery makes of them, as JSON.
    Damage {
        /// Configuration file (JSON).
        config: PathBuf,
        /// Of each kind at each crash position, at most.
        #[arg(long, default_value_t = 100)]
        at_most: usize,
        /// This one alone.
        #[arg(long)]
        only: Option<String>,
    },
    /// Print what there is, as JSON: persistency models, strategies and rules.
    Lists,
    /// Compare litmus tests with the persistency model.
    Litmus {
        /// Litmus tests.
        #[arg(required = true)]
        files: Vec<PathBuf>,
        /// Print each test's states instead.
        #[arg(long)]
        print: bool,
        /// Print them by the steps that have ended when power fails.
        #[arg(long)]
        by_step: bool,
        /// Persistency model.
        #[arg(long, default_value = "px86")]
        model: String,
    },
    /// Decode a token to JSON.
    Token {
        /// The token.
        token: String,
    },
}

fn main() -> ExitCode {
    match execute(Arguments::parse().command) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(error.exit_code())
        }
    }
}

fn execute(command: Command) -> Result<u8, EngineError> {
    match command {
        Command::Explore { config } => {
            let config = Config::read(&config)?;
            Ok(run::explore(&config, Trace::read(&config.trace)?, &mut Output::default())?.exit_code())
        }
        Command::Replay { config, token } => {
            let witness = decode(&token)?;
            let config = Config::read(&config)?;
            let trace = Trace::read(&config.trace)?;
            let config = config.for_token(&witness, &trace)?;
            Ok(replay::replay(&config, &trace, &witness, &mut Output::default())?.exit_code())
        }
        Command::Shrink { config, token } => {
            let witness = decode(&token)?;
            let config = Config::read(&config)?;
            let trace = Trace::read(&config.trace)?;
            let config = config.for_token(&witness, &trace)?;
            Ok(shrink::shrink(&config, &trace, &witness, &mut Output::default())?.exit_code())
        }
        Command::Damage { config, at_most, only } => {
            let config = Config::read(&config)?;
            let trace = Trace::read(&config.trace)?;
            damage::damage(&config, &trace, at_most, only.as_deref(), &mut Output::default())?;
            Ok(0)
        }
        Command::Judge { config, endings } => {
            let config = Config::read(&config)?;
            let trace = Trace::read(&config.trace)?;
            Ok(judge::judge_endings(&config, &trace, &endings, &mut Output::default())?.exit_code())
        }
        Command::BenchReplay { config } => {
            let config = Config::read(&config)?;
            bench::bench(&config, &Trace::read(&config.trace)?).map(|()| 0)
        }
        Command::Seal { trace } => {
            println!("{}", seal(&trace)?);
            Ok(0)
        }
        Command::TraceInfo { trace, json } => {
            trace_info::print(&Trace::read(&trace)?, json);
            Ok(0)
        }
        Command::Rules { trace, module_root, durable_on_close } => {
            let trace = Trace::read(&trace)?;
            let found = trace_rules::judge(&trace, &mut Symbols::under(&trace, &module_root), !durable_on_close);
            Output::default().say("trace_rules", &found);
            Ok(0)
        }
        Command::Places { config } => {
            let config = Config::read(&config)?;
            places::print(&config, &Trace::read(&config.trace)?);
            Ok(0)
        }
        Command::Calls { calls, helper } => calls::print(&calls, helper).map(|()| 0),
        Command::Dump { trace, module_root } => {
            let printed = dump::print(&Trace::read(&trace)?, &module_root);
            printed.map_err(|error| EngineError::Infrastructure(format!("standard output: {error}"))).map(|()| 0)
        }
        Command::Import { log, out, base } => store_log::import(&log, &out, base.as_deref()).map(|()| 0),
        Command::Export { trace, out, folder, module_root } => {
            store_log::export(&Trace::read(&trace)?, &out, &folder, &module_root).map(|()| 0)
        }
        Command::States { trace, lines } => {
            let trace = Trace::read(&trace)?;
            lines.map_or_else(|| states::print_all(&trace), |first| states::print_lines(&trace, first));
            Ok(0)
        }
        Command::Yardstick { config, states, full } => {
            let config = Config::read(&config)?;
            let probe = if full { Probe::Full } else { Probe::First };
            let is_same = yardstick::measure(&config, &Trace::read(&config.trace)?, states.into(), probe)?;
            Ok(u8::from(!is_same))
        }
        Command::Lists => {
            lists::print_all();
            Ok(0)
        }
        Command::Litmus { files, print, by_step, model } => {
            let states = if by_step { litmus::Print::StatesByStep } else { litmus::Print::States };
            litmus::run(&files, (print || by_step).then_some(states), &model)
        }
        Command::Token { token } => {
            println!("{}", serde_json::to_string(&decode(&token)?).expect("plain data"));
            Ok(0)
        }
    }
}

fn decode(token: &str) -> Result<Witness, EngineError> {
    Witness::decode(token).map_err(|error| bad_input(error.to_string()))
}
