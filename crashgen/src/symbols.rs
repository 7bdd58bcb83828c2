// SPDX-License-Identifier: Apache-2.0
//! Function, file and line of a site.

use crate::trace::{SiteId, Trace};
use rustc_hash::FxHashMap;
use std::path::{Path, PathBuf};

/// A site in words a person knows.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
pub struct Symbol {
    /// Function, demangled; empty if unknown.
    pub function: String,
    /// Source file as the compiler recorded it; the module's name if unknown.
    pub file: String,
    /// Line, 0 if unknown.
    pub line: u32,
}

impl Symbol {
    /// FUNCTION (FILE:LINE), as far as it is known.
    pub fn text(&self) -> String {
        match (self.function.as_str(), self.line) {
            ("", 0) => {
                if self.file.is_empty() {
                    "an unknown place".to_owned()
                } else {
                    self.file.clone()
                }
            }
            ("", line) => format!("{}:{line}", self.file),
            (function, 0) => function.to_owned(),
            (function, line) => format!("{function} ({}:{line})", self.file),
        }
    }
}

/// Reads debug information on first use, a module at a time; a module that is gone or changed gives its name only.
#[derive(Default)]
pub struct Symbols {
    /// Programs and libraries that modules with relative paths are looked for among.
    built: Vec<PathBuf>,
    loaders: FxHashMap<u32, Option<addr2line::Loader>>,
    known: FxHashMap<SiteId, Symbol>,
}

impl Symbols {
    /// `built`: where the programs and libraries that were built for the trace are now.
    pub fn new(built: Vec<PathBuf>) -> Self {
        Self { built, ..Self::default() }
    }

    /// Everything that the trace names by relative paths lies under `root`.
    pub fn under(trace: &Trace, root: &Path) -> Self {
        Self::new(trace.modules.iter().map(|module| root.join(&module.path)).collect())
    }

    /// The symbol of a site.
    pub fn find(&mut self, trace: &Trace, site: SiteId) -> Symbol {
        if let Some(symbol) = self.known.get(&site) {
            return symbol.clone();
        }
        let symbol = self.look_up(trace, site);
        self.known.insert(site, symbol.clone());
        symbol
    }

    fn look_up(&mut self, trace: &Trace, site: SiteId) -> Symbol {
        let Some((module, offset)) =
            trace.sites.get(site.0 as usize).and_then(|site| Some((site.module?, site.offset)))
        else {
            return Symbol::default();
        };
        let path = &trace.modules[module as usize].path;
        let loader = self.loaders.entry(module).or_insert_with(|| {
            let built = self.built.iter().find(|built| built.ends_with(path));
            addr2line::Loader::new(built.unwrap_or(path)).ok()
        });
        let file = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let unknown = Symbol { function: String::new(), file, line: 0 };
        loader.as_ref().map_or(unknown.clone(), |loader| symbolise(loader, offset, unknown))
    }
}

/// The innermost frame that is not one of persist.h's helpers: a person wants to know who flushed.
fn symbolise(loader: &addr2line::Loader, address: u64, unknown: Symbol) -> Symbol {
    let mut best = unknown;
    let Ok(mut frames) = loader.find_frames(address) else { return best };
    while let Ok(Some(frame)) = frames.next() {
        let function =
            frame.function.and_then(|name| name.demangle().ok().map(|name| name.into_owned())).unwrap_or_default();
        let (file, line) = frame.location.map_or(("", 0), |place| (place.file.unwrap_or(""), place.line.unwrap_or(0)));
        let is_helper = Path::new(file).file_name().is_some_and(|name| name == "persist.h");
        best = Symbol { function, file: file.trim_start_matches("./").to_owned(), line };
        if !is_helper {
            break;
        }
    }
    if best.function.is_empty() {
        best.function = loader.find_symbol(address).unwrap_or_default().to_owned();
    }
    best
}
