// SPDX-License-Identifier: Apache-2.0
//! Function, file and line of a site.
//!
//! A helper that flushes for others is one place in the source and says nothing of what the flush is for. A person wants to know who
//! called it. So a site is shown as the innermost frame, over inlined functions and calls, that lies outside the files of helpers:
//! `persist.h`, and those that `allocator.toml` names.

mod ordinals;

pub use ordinals::Ordinals;

use crate::trace::{Module, Site, SiteId, Trace};
use rustc_hash::FxHashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What the allocators of this repository flush and fence with.
const PERSIST: &str = "persist.h";

/// Where headers of libraries lie. What is inlined from them acts for its callers.
const SYSTEM: &str = "/usr";

/// A site in words a person knows.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
pub struct Symbol {
    /// Function, demangled; empty if unknown.
    pub function: String,
    /// Source file as the compiler recorded it; the module's name if unknown.
    pub file: String,
    /// Line, 0 if unknown.
    pub line: u32,
    /// The allocator's helper that it called there, in words; empty if it is the place itself.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub helper: String,
}

impl Symbol {
    /// FUNCTION (FILE:LINE), as far as it is known; HELPER called by FUNCTION (FILE:LINE).
    pub fn text(&self) -> String {
        if self.helper.is_empty() { self.place() } else { format!("{} called by {}", self.helper, self.place()) }
    }

    /// Whether it is in a header of a library.
    pub fn is_of_system(&self) -> bool {
        Path::new(&self.file).starts_with(SYSTEM)
    }

    /// Of a place in words, as Valgrind writes it: FUNCTION (FILE:LINE), or FUNCTION (in MODULE).
    pub fn in_words(words: &str) -> Self {
        let parts = words.strip_suffix(')').and_then(|words| words.rsplit_once(" ("));
        let (function, place) = parts.unwrap_or((words, ""));
        let function = if function == "???" { "" } else { function }.to_owned();
        let named = place.rsplit_once(':').and_then(|(file, line)| Some((file, line.parse().ok()?)));
        let (file, line) = named.unwrap_or((place.strip_prefix("in ").unwrap_or(place), 0));
        Self { function, file: file.to_owned(), line, helper: String::new() }
    }

    fn place(&self) -> String {
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
    /// Where programs and libraries with relative paths in the trace are now.
    built: Vec<PathBuf>,
    /// Files whose functions act for their callers, relative.
    helpers: Vec<PathBuf>,
    loaders: FxHashMap<u32, Option<addr2line::Loader>>,
    known: FxHashMap<SiteId, Symbol>,
    ordinals: FxHashMap<u32, Ordinals>,
    names: FxHashMap<SiteId, String>,
}

impl Symbols {
    /// `built`: where the programs and libraries that were built for the trace are now; `helpers`: files of helpers besides persist.h,
    /// as the compiler records them or the last parts of that.
    pub fn new(built: Vec<PathBuf>, helpers: Vec<PathBuf>) -> Self {
        Self { built, helpers, ..Self::default() }
    }

    /// Everything that the trace names by relative paths lies under `root`.
    pub fn under(trace: &Trace, root: &Path) -> Self {
        Self::new(trace.modules.iter().map(|module| root.join(&module.path)).collect(), Vec::new())
    }

    /// The symbol of a site.
    pub fn find(&mut self, trace: &Trace, site: SiteId) -> Symbol {
        if let Some(symbol) = self.known.get(&site) {
            return symbol.clone();
        }
        let frames = self.frames(trace, site);
        let symbol = self.place_of(&frames).map_or_else(Symbol::default, |(_, frame)| frame.symbol);
        self.known.insert(site, symbol.clone());
        symbol
    }

    /// Whether the site is shown in a helper, because its callers are not known.
    pub fn is_bare_helper(&mut self, trace: &Trace, site: SiteId) -> bool {
        let symbol = self.find(trace, site);
        is_in(&symbol, Path::new(PERSIST)) || self.is_helper(&symbol)
    }

    /// Who called the function that the symbol is in, and so on, as far as the trace says.
    pub fn callers(&mut self, trace: &Trace, site: SiteId) -> Vec<Symbol> {
        let frames = self.frames(trace, site);
        let at = self.place_of(&frames).map_or(0, |(at, _)| at + 1);
        frames.into_iter().skip(at).map(|frame| frame.symbol).collect()
    }

    /// The place of a call, and its callers. `calls`: module and offset of the call, then of the one that led there, and so on. It takes the
    /// object, because these calls have no site numbers of a trace, and would be taken for those that have.
    pub fn of_calls(mut self, calls: &[(PathBuf, u64)]) -> (Symbol, Vec<Symbol>) {
        let mut paths: Vec<&Path> = calls.iter().map(|(path, _)| path.as_path()).collect();
        paths.sort_unstable();
        paths.dedup();
        let site = |(number, (path, offset)): (u32, &(PathBuf, u64))| {
            let module = paths.binary_search(&path.as_path()).expect("all are there") as u32;
            let caller = ((number as usize) + 1 < calls.len()).then_some(SiteId(number + 2));
            Site { module: Some(module), offset: *offset, caller }
        };
        let unknown = Site { module: None, offset: 0, caller: None };
        let trace = Trace {
            sites: [unknown].into_iter().chain((0..).zip(calls).map(site)).collect(),
            modules: paths.iter().map(|path| Module { path: path.to_path_buf(), build_id: String::new() }).collect(),
            ..Trace::default()
        };
        (self.find(&trace, SiteId(1)), self.callers(&trace, SiteId(1)))
    }

    /// The places at these offsets in modules; none: not known. It takes the object, as [`Self::of_calls`] does.
    pub fn of_places(mut self, places: &[Option<(Arc<Path>, u64)>]) -> Vec<Symbol> {
        let mut modules: Vec<Module> = Vec::new();
        let mut number = |path: &Path| {
            let known = modules.iter().position(|module| module.path == path);
            known.unwrap_or_else(|| {
                modules.push(Module { path: path.to_path_buf(), build_id: String::new() });
                modules.len() - 1
            }) as u32
        };
        let sites = places.iter().map(|place| match place {
            Some((module, offset)) => Site { module: Some(number(module)), offset: *offset, caller: None },
            None => Site { module: None, offset: 0, caller: None },
        });
        let trace = Trace { sites: sites.collect(), modules, ..Trace::default() };
        (0..places.len() as u32).map(|number| self.find(&trace, SiteId(number))).collect()
    }

    /// A name of the site's line of source that lasts when lines around it move and other workloads run:
    /// FILE FUNCTION#ORDINAL ([`Ordinals`]); FUNCTION+OFFSET in code without debug information; FILE FUNCTION:LINE of an imported log,
    /// which has no debug information to count lines by.
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
        let frames = self.frames(trace, site);
        let Some((_, Frame { symbol, raw })) = self.place_of(&frames) else { return String::new() };
        if trace.is_imported() {
            return format!("{} {}:{}", file_name(Path::new(&symbol.file)), symbol.function, symbol.line);
        }
        let ordinals = self.ordinals.entry(module).or_insert_with(|| Ordinals::of(&path));
        if let Some(ordinal) = ordinals.find(&raw, &symbol.file, symbol.line) {
            return format!("{} {}#{ordinal}", file_name(Path::new(&symbol.file)), symbol.function);
        }
        let symbol = self.loader(trace, module).and_then(|loader| loader.find_symbol_info(offset));
        match symbol {
            Some(symbol) => format!("{}+{:x}", symbol.name(), offset - symbol.address()),
            None => format!("{}+{offset:x}", file_name(&path)),
        }
    }

    /// The first frame that is no helper and not from a library's header; the outermost where all are.
    fn place_of(&self, frames: &[Frame]) -> Option<(usize, Frame)> {
        let is_helper = |symbol: &Symbol| is_in(symbol, Path::new(PERSIST)) || self.is_helper(symbol);
        let at = frames.iter().position(|frame| !is_helper(&frame.symbol) && !frame.symbol.is_of_system());
        let at = at.or(frames.len().checked_sub(1))?;
        let helper = frames[..at].iter().rev().find(|frame| self.is_helper(&frame.symbol));
        let mut place = frames[at].clone();
        place.symbol.helper = helper.map(|frame| frame.symbol.place()).unwrap_or_default();
        Some((at, place))
    }

    fn is_helper(&self, symbol: &Symbol) -> bool {
        self.helpers.iter().any(|helper| is_in(symbol, helper))
    }

    /// All frames, innermost first: of the instruction, then of its callers, each with the functions that are inlined there.
    fn frames(&mut self, trace: &Trace, site: SiteId) -> Vec<Frame> {
        let mut frames = Vec::new();
        let mut next = Some(site);
        while let Some(site) = next {
            if let Some((module, offset)) = place_in_module(trace, site) {
                self.look_up(trace, module, offset, &mut frames);
            }
            next = trace.sites.get(site.0 as usize).and_then(|site| site.caller);
        }
        frames
    }

    fn look_up(&mut self, trace: &Trace, module: u32, offset: u64, frames: &mut Vec<Frame>) {
        if trace.is_imported() {
            let symbol = Symbol::in_words(&trace.modules[module as usize].path.to_string_lossy());
            return frames.push(Frame { symbol, raw: String::new() });
        }
        let before = frames.len();
        let loader = self.loader(trace, module);
        if let Some(loader) = loader {
            inlined_frames(loader, offset, frames);
        }
        // Of a module without debug information the name of the function may still be known.
        let function = loader.and_then(|loader| loader.find_symbol(offset)).unwrap_or_default().to_owned();
        if frames.len() == before {
            let file = file_name(&trace.modules[module as usize].path);
            frames.push(Frame { symbol: Symbol { file, ..Symbol::default() }, raw: String::new() });
        }
        if let Some(last) = frames.last_mut().filter(|last| last.symbol.function.is_empty()) {
            last.symbol.function = function;
        }
    }

    fn loader(&mut self, trace: &Trace, module: u32) -> Option<&addr2line::Loader> {
        let path = self.path(trace, module);
        self.loaders.entry(module).or_insert_with(|| addr2line::Loader::new(path).ok()).as_ref()
    }

    fn path(&self, trace: &Trace, module: u32) -> PathBuf {
        let path = &trace.modules[module as usize].path;
        let named = self.built.iter().find(|built| built.ends_with(path));
        named.cloned().or_else(|| self.beside(path)).unwrap_or_else(|| path.clone())
    }

    /// A shared library that a build kept beside what was built for the trace: no program, but named relative to the same folder.
    fn beside(&self, path: &Path) -> Option<PathBuf> {
        let folders = self
            .built
            .iter()
            .filter_map(|built| built.parent())
            .filter(|folder| !path.is_absolute() && path.parent().is_some_and(|named| folder.ends_with(named)));
        folders.map(|folder| folder.join(path.file_name().unwrap_or_default())).find(|library| library.exists())
    }
}

fn place_in_module(trace: &Trace, site: SiteId) -> Option<(u32, u64)> {
    trace.sites.get(site.0 as usize).and_then(|site| Some((site.module?, site.offset)))
}

fn file_name(path: &Path) -> String {
    path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

#[derive(Clone)]
struct Frame {
    symbol: Symbol,
    /// The function as the object file calls it.
    raw: String,
}

/// The frames of one address, innermost first.
fn inlined_frames(loader: &addr2line::Loader, address: u64, found: &mut Vec<Frame>) {
    let Ok(mut frames) = loader.find_frames(address) else { return };
    while let Ok(Some(frame)) = frames.next() {
        let name = |demangled: bool| {
            let name = frame.function.as_ref()?;
            Some(if demangled { name.demangle() } else { name.raw_name() }.ok()?.into_owned())
        };
        let (file, line) =
            frame.location.as_ref().map_or(("", 0), |place| (place.file.unwrap_or(""), place.line.unwrap_or(0)));
        let file = file.trim_start_matches("./").to_owned();
        let symbol = Symbol { function: name(true).unwrap_or_default(), file, line, helper: String::new() };
        found.push(Frame { symbol, raw: name(false).unwrap_or_default() });
    }
}

fn is_in(symbol: &Symbol, file: &Path) -> bool {
    Path::new(&symbol.file).ends_with(file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::IMPORTED;

    fn frame(function: &str, file: &str, line: u32) -> Symbol {
        Symbol { function: function.into(), file: file.into(), line, helper: String::new() }
    }

    fn symbols() -> Symbols {
        Symbols::new(Vec::new(), vec!["src/store.h".into()])
    }

    #[test]
    fn a_place_is_the_first_frame_that_is_no_helper() {
        let flush = frame("fl_flush", "include/persist.h", 78);
        let helper = frame("store_flushed", "allocators/x/src/store.h", 16);
        let outer = frame("store_entry", "allocators/x/src/store.h", 49);
        let (caller, main) =
            (frame("publish", "allocators/x/src/heap.c", 7), frame("run", "allocators/x/src/heap.c", 90));
        let place = |frames: &[&Symbol]| {
            let frame = |symbol: &&Symbol| Frame { symbol: (*symbol).clone(), raw: String::new() };
            let frames: Vec<Frame> = frames.iter().map(frame).collect();
            symbols().place_of(&frames).map(|(at, frame)| (at, frame.symbol.text()))
        };
        assert_eq!(place(&[&flush, &caller, &main]), Some((1, "publish (allocators/x/src/heap.c:7)".into())));
        let said = "store_entry (allocators/x/src/store.h:49) called by publish (allocators/x/src/heap.c:7)";
        assert_eq!(place(&[&flush, &helper, &outer, &caller, &main]), Some((3, said.into())));
        let header = frame("std::copy", "/usr/include/c++/12/bits/stl_algobase.h", 9);
        assert_eq!(place(&[&header, &caller]), Some((1, "publish (allocators/x/src/heap.c:7)".into())));
        assert_eq!(place(&[&header]).map(|(at, _)| at), Some(0));
        // Of a trace without callers the helper is all there is.
        assert_eq!(place(&[&flush, &helper]), Some((1, "store_flushed (allocators/x/src/store.h:16)".into())));
        assert_eq!(place(&[]), None);
    }

    #[test]
    fn a_place_in_the_words_of_valgrind_is_read() {
        assert_eq!(Symbol::in_words("publish (heap.c:7)"), frame("publish", "heap.c", 7));
        assert_eq!(Symbol::in_words("at(int) (a.cc:70)"), frame("at(int)", "a.cc", 70));
        assert_eq!(Symbol::in_words("memcpy (in /usr/lib/libc.so.6)"), frame("memcpy", "/usr/lib/libc.so.6", 0));
        assert_eq!(Symbol::in_words("??? (in /opt/x)"), frame("", "/opt/x", 0));
        assert_eq!(Symbol::in_words("???"), Symbol::default());
    }

    #[test]
    fn the_modules_of_an_imported_log_are_places_in_words() {
        let module = Module { path: "publish (heap.c:7)".into(), build_id: String::new() };
        let unknown = Site { module: None, offset: 0, caller: None };
        let sites = vec![unknown, Site { module: Some(0), offset: 8, caller: None }];
        let trace = Trace { sites, modules: vec![module], tracer: IMPORTED.to_owned(), ..Trace::default() };
        assert_eq!(symbols().find(&trace, SiteId(1)), frame("publish", "heap.c", 7));
        assert_eq!(symbols().lasting_name(&trace, SiteId(1)), "heap.c publish:7");
    }

    #[test]
    fn a_site_without_debug_information_has_its_callers_all_the_same() {
        let site = |offset, caller| Site { module: Some(0), offset, caller };
        let unknown = Site { module: None, offset: 0, caller: None };
        let module = Module { path: "/nowhere/heap.so".into(), build_id: String::new() };
        let trace = Trace {
            sites: vec![unknown, site(8, None), site(16, Some(SiteId(1)))],
            modules: vec![module],
            ..Trace::default()
        };
        assert_eq!(symbols().find(&trace, SiteId(2)), frame("", "heap.so", 0));
        assert_eq!(symbols().callers(&trace, SiteId(2)), [frame("", "heap.so", 0)]);
        assert_eq!(symbols().find(&trace, SiteId(0)), Symbol::default());
        assert!(symbols().callers(&trace, SiteId(0)).is_empty());
    }
}
