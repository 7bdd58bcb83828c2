// SPDX-License-Identifier: Apache-2.0
//! Function, file and line of a site.

use crate::ordinals::Ordinals;
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
    ordinals: FxHashMap<u32, Ordinals>,
    names: FxHashMap<SiteId, String>,
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

    /// A name of the site's line of source that lasts when lines around it move and other workloads run:
    /// FILE FUNCTION#ORDINAL ([`Ordinals`]); FUNCTION+OFFSET in code without debug information.
    pub fn lasting_name(&mut self, trace: &Trace, site: SiteId) -> String {
        if let Some(name) = self.names.get(&site) {
            return name.clone();
        }
        let name = self.make_name(trace, site);
        self.names.insert(site, name.clone());
        name
    }

    fn make_name(&mut self, trace: &Trace, site: SiteId) -> String {
        let Some((module, offset)) = place_in_module(trace, site) else { return String::new() };
        let path = self.path(trace, module);
        let frame = self.loader(trace, module).and_then(|loader| frame_of(loader, offset)).unwrap_or_default();
        let ordinals = self.ordinals.entry(module).or_insert_with(|| Ordinals::of(&path));
        if let Some(ordinal) = ordinals.find(&frame.raw, &frame.symbol.file, frame.symbol.line) {
            return format!("{} {}#{ordinal}", file_name(Path::new(&frame.symbol.file)), frame.symbol.function);
        }
        let symbol = self.loader(trace, module).and_then(|loader| loader.find_symbol_info(offset));
        match symbol {
            Some(symbol) => format!("{}+{:x}", symbol.name(), offset - symbol.address()),
            None => format!("{}+{offset:x}", file_name(&path)),
        }
    }

    fn look_up(&mut self, trace: &Trace, site: SiteId) -> Symbol {
        let Some((module, offset)) = place_in_module(trace, site) else { return Symbol::default() };
        let unknown = Symbol { file: file_name(&trace.modules[module as usize].path), ..Symbol::default() };
        let Some(loader) = self.loader(trace, module) else { return unknown };
        let mut symbol = frame_of(loader, offset).map_or(unknown, |frame| frame.symbol);
        if symbol.function.is_empty() {
            symbol.function = loader.find_symbol(offset).unwrap_or_default().to_owned();
        }
        symbol
    }

    fn loader(&mut self, trace: &Trace, module: u32) -> Option<&addr2line::Loader> {
        let path = self.path(trace, module);
        self.loaders.entry(module).or_insert_with(|| addr2line::Loader::new(path).ok()).as_ref()
    }

    fn path(&self, trace: &Trace, module: u32) -> PathBuf {
        let path = &trace.modules[module as usize].path;
        self.built.iter().find(|built| built.ends_with(path)).unwrap_or(path).clone()
    }
}

fn place_in_module(trace: &Trace, site: SiteId) -> Option<(u32, u64)> {
    trace.sites.get(site.0 as usize).and_then(|site| Some((site.module?, site.offset)))
}

fn file_name(path: &Path) -> String {
    path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

#[derive(Default)]
struct Frame {
    symbol: Symbol,
    /// The function as the object file calls it.
    raw: String,
}

/// The innermost frame that is not one of persist.h's helpers: a person wants to know who flushed.
fn frame_of(loader: &addr2line::Loader, address: u64) -> Option<Frame> {
    let mut best = None;
    let mut frames = loader.find_frames(address).ok()?;
    while let Ok(Some(frame)) = frames.next() {
        let name = |demangled: bool| {
            let name = frame.function.as_ref()?;
            Some(if demangled { name.demangle() } else { name.raw_name() }.ok()?.into_owned())
        };
        let (file, line) =
            frame.location.as_ref().map_or(("", 0), |place| (place.file.unwrap_or(""), place.line.unwrap_or(0)));
        let is_helper = Path::new(file).file_name().is_some_and(|name| name == "persist.h");
        let file = file.trim_start_matches("./").to_owned();
        let symbol = Symbol { function: name(true).unwrap_or_default(), file, line };
        best = Some(Frame { symbol, raw: name(false).unwrap_or_default() });
        if !is_helper {
            break;
        }
    }
    best
}
