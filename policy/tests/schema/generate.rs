//! Manifests made from a seed: valid ones, and all the ways to change one place of them.

use serde_json::{Map, Value, json};

/// A small generator of numbers (splitmix64): the same seed gives the same manifests everywhere.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(crate) fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    fn one_in(&mut self, bound: usize) -> bool {
        self.below(bound) == 0
    }

    pub(crate) fn pick<'a, T>(&mut self, list: &'a [T]) -> &'a T {
        &list[self.below(list.len())]
    }
}

const TEXTS: &[&str] = &["", "a", "Größe 漢 😀", "two\nlines", "\"quoted\" \\ back", "- # : {", "true", "1", "null"];

fn text(random: &mut Random) -> Value {
    (*random.pick(TEXTS)).into()
}

fn text_or_null(random: &mut Random) -> Value {
    if random.one_in(4) { Value::Null } else { text(random) }
}

fn flag(random: &mut Random) -> Value {
    random.one_in(2).into()
}

fn flag_or_null(random: &mut Random) -> Value {
    if random.one_in(3) { Value::Null } else { flag(random) }
}

fn word(random: &mut Random, words: &[&str]) -> Value {
    (*random.pick(words)).into()
}

fn anything(random: &mut Random) -> Value {
    random
        .pick(&[json!(null), json!(1), json!(1.5), json!("x"), json!([1, ["a"]]), json!({"a": {"b": [true]}})])
        .clone()
}

fn list(random: &mut Random, mut item: impl FnMut(&mut Random) -> Value) -> Value {
    let count = random.below(4);
    (0..count).map(|_| item(random)).collect()
}

/// A table with the keys of `required`, and each of `optional` half of the time.
type Make = fn(&mut Random) -> Value;

fn table(random: &mut Random, required: &[(&str, Make)], optional: &[(&str, Make)]) -> Value {
    let mut map = Map::new();
    for (key, make) in required {
        map.insert((*key).to_owned(), make(random));
    }
    for (key, make) in optional {
        if random.one_in(2) {
            map.insert((*key).to_owned(), make(random));
        }
    }
    Value::Object(map)
}

fn agent_name(random: &mut Random) -> Value {
    word(random, &["a", "research-agent", "0", "a--b"])
}

fn model(random: &mut Random) -> Value {
    if random.one_in(4) { Value::Null } else { table(random, &[("provider", text), ("model", text)], &[]) }
}

fn network_access(random: &mut Random) -> Value {
    const PATTERNS: &[&str] = &["example.com", "*.example.org", "https://example.net/api/", "192.0.2.1"];
    if random.one_in(5) {
        return Value::Null;
    }
    let patterns: Make = |random| list(random, |random| word(random, PATTERNS));
    table(random, &[], &[("allowed", patterns), ("blocked", patterns)])
}

fn starter(random: &mut Random) -> Value {
    table(random, &[("text", text)], &[("icon", text_or_null), ("further", anything)])
}

fn file(random: &mut Random) -> Value {
    match random.below(3) {
        0 => text(random),
        1 => table(random, &[("source", text)], &[("path", text_or_null), ("is_readonly", flag)]),
        _ => {
            let encoding: Make = |random| word(random, &["text", "base64"]);
            table(random, &[("path", text), ("content", text)], &[("encoding", encoding), ("is_readonly", flag)])
        }
    }
}

fn settings(random: &mut Random) -> Value {
    table(random, &[], &[("a", anything), ("b", anything)])
}

fn channel(random: &mut Random) -> Value {
    table(random, &[("type", text)], &[("enabled", flag), ("config", settings)])
}

fn hints(random: &mut Random) -> Value {
    let class: Make = |random| match random.below(4) {
        0 => Value::Null,
        _ => word(random, &["Pure", "Idempotent", "AtMostOnce"]),
    };
    table(
        random,
        &[],
        &[
            ("readonly", flag_or_null),
            ("destructive", flag_or_null),
            ("idempotent", flag_or_null),
            ("open_world", flag_or_null),
            ("requires_secrets", flag_or_null),
            ("long_running", flag_or_null),
            ("cpu_bound", flag_or_null),
            ("persist_output", flag_or_null),
            ("supports_background", flag_or_null),
            ("side_effect_class", class),
            ("capability_id", text_or_null),
            ("capability_name", text_or_null),
            ("concurrency_class", text_or_null),
            ("narration_noun", text_or_null),
            ("metadata", anything),
            ("further", anything),
        ],
    )
}

fn tool(random: &mut Random) -> Value {
    let kind: Make = |_| "client_side".into();
    let deferrable: Make = |random| word(random, &["never", "automatic", "always"]);
    table(
        random,
        &[("type", kind), ("name", text), ("description", text), ("parameters", settings)],
        &[
            ("full_parameters", anything),
            ("display_name", text_or_null),
            ("category", text_or_null),
            ("deferrable", deferrable),
            ("hints", hints),
        ],
    )
}

fn capabilities(random: &mut Random) -> Value {
    let names = ["web_fetch", "_memory", "vendor:tool.v1"];
    let count = random.below(names.len() + 1);
    names[..count]
        .iter()
        .map(|name| match random.below(3) {
            0 => (*name).into(),
            1 => json!({ "ref": name }),
            _ => json!({ "ref": name, "config": settings(random) }),
        })
        .collect()
}

fn server(random: &mut Random) -> Value {
    let auth: Make = |random| word(random, &["none", "api_key", "oauth"]);
    let acts: Make = |random| word(random, &["none", "service", "user"]);
    let mode: Make = |random| word(random, &["auto", "2025-03-26", "2025-06-18", "2026-07-28"]);
    let policy: Make = |random| word(random, &["url", "url_and_form", "none"]);
    let common: [(&str, Make); 6] = [
        ("auth_mode", auth),
        ("actsAs", acts),
        ("protocol_mode", mode),
        ("elicitation_policy", policy),
        ("tool_discovery", flag),
        ("oauth_provider_id", text_or_null),
    ];
    let with = |own: &[(&'static str, Make)]| [&common[..], own].concat();
    let url: Make =
        |random| word(random, &["https://mcp.example.com/mcp", "http://localhost:1/", "https://[2001:db8::1]/"]);
    let headers: Make = |random| {
        let token: Make = |random| word(random, &["${TOKEN}", "${a_1}"]);
        table(random, &[], &[("Authorization", token), ("X-Team", text_in_header)])
    };
    match random.below(4) {
        0 => {
            let reference: Make = |random| word(random, &["catalog:linear", "catalog:x"]);
            table(random, &[("use", reference)], &common)
        }
        1 => {
            let kind: Make = |_| "stdio".into();
            let command: Make = |_| "npx".into();
            let args: Make = |random| list(random, text);
            let env: Make = |random| {
                let token: Make = |_| "${TOKEN}".into();
                table(random, &[], &[("API_TOKEN", token), ("MODE", text)])
            };
            table(random, &[("type", kind), ("command", command)], &with(&[("args", args), ("env", env)]))
        }
        _ => {
            let kind: Make = |_| "http".into();
            let nothing: Make = |_| Value::Null;
            let own = [("type", kind), ("headers", headers), ("use", nothing), ("command", nothing)];
            table(random, &[("url", url)], &with(&own))
        }
    }
}

fn text_in_header(random: &mut Random) -> Value {
    word(random, &["", "ops", "größe", "a, b"])
}

fn named(random: &mut Random, make: Make) -> Value {
    let names = ["linear", "docs-2", "with space", "größe"];
    let count = random.below(names.len());
    Value::Object(names[..count].iter().map(|name| ((*name).to_owned(), make(random))).collect())
}

/// A manifest that keeps every rule.
pub(crate) fn manifest(random: &mut Random) -> Value {
    let mut value = table(
        random,
        &[("name", agent_name)],
        &[
            ("schema_version", |_| 1.into()),
            ("display_name", text_or_null),
            ("description", text_or_null),
            ("short_description", text_or_null),
            ("intro_markdown", text_or_null),
            ("instructions", text),
            ("instructions_file", text_or_null),
            ("harness", text_or_null),
            ("model", model),
            ("max_iterations", |random| random.pick(&[json!(1), json!(1000), json!(7), json!(null)]).clone()),
            ("parallel_tool_calls", flag_or_null),
            ("tags", |random| list(random, text)),
            ("skills", |random| list(random, text)),
            ("starters", |random| list(random, starter)),
            ("files", |random| list(random, file)),
            ("tools", |random| list(random, tool)),
            ("channels", |random| named(random, channel)),
            ("capabilities", capabilities),
            ("environments", anything),
            ("network_access", network_access),
            ("mcpServers", |random| named(random, server)),
        ],
    );
    let both = |key: &str| value.get(key).is_some_and(|text| text.as_str().is_some_and(|text| !text.is_empty()));
    if both("instructions") && value.get("instructions_file").is_some_and(Value::is_string) {
        value["instructions_file"] = Value::Null;
    }
    if random.one_in(2) { without_nulls(value) } else { value }
}

/// The same without the keys that are null, so that TOML can spell it.
fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(map) => {
            let kept = map.into_iter().filter(|(_, value)| !value.is_null());
            kept.map(|(key, value)| (key, without_nulls(value))).collect::<Map<_, _>>().into()
        }
        Value::Array(items) => items.into_iter().filter(|item| !item.is_null()).map(without_nulls).collect(),
        other => other,
    }
}

/// A manifest that has every key there is.
pub(crate) fn everything() -> Value {
    serde_json::from_str(include_str!("everything.json")).expect("the file is JSON")
}

/// A place in a manifest, as the keys and positions that lead there.
pub(crate) type Path = Vec<Step>;

#[derive(Clone, Debug)]
pub(crate) enum Step {
    Key(String),
    Index(usize),
}

/// Every place of a manifest, the root first.
pub(crate) fn places(value: &Value) -> Vec<Path> {
    fn walk(value: &Value, path: &mut Path, found: &mut Vec<Path>) {
        found.push(path.clone());
        let below: Vec<(Step, &Value)> = match value {
            Value::Object(map) => map.iter().map(|(key, value)| (Step::Key(key.clone()), value)).collect(),
            Value::Array(items) => items.iter().enumerate().map(|(at, value)| (Step::Index(at), value)).collect(),
            _ => Vec::new(),
        };
        for (step, value) in below {
            path.push(step);
            walk(value, path, found);
            path.pop();
        }
    }
    let mut found = Vec::new();
    walk(value, &mut Vec::new(), &mut found);
    found
}

fn at<'v>(mut value: &'v mut Value, path: &[Step]) -> &'v mut Value {
    for step in path {
        value = match step {
            Step::Key(key) => &mut value[key.as_str()],
            Step::Index(index) => &mut value[*index],
        };
    }
    value
}

/// Every way to change `manifest` at `path` alone.
pub(crate) fn mutations(manifest: &Value, path: &[Step]) -> Vec<Value> {
    let mut mutants = Vec::new();
    let mut change = |with: &dyn Fn(&mut Value)| {
        let mut mutant = manifest.clone();
        with(at(&mut mutant, path));
        if mutant != *manifest {
            mutants.push(mutant);
        }
    };
    let others = [
        json!(null),
        json!(true),
        json!(0),
        json!(1),
        json!(2),
        json!(-1),
        json!(1000),
        json!(1001),
        json!(1.0),
        json!(1.5),
        json!(2_147_483_648_i64),
        json!(u64::MAX),
        json!(1e300),
        json!(""),
        json!("x"),
        json!("X Y"),
        json!("${A}"),
        json!("none"),
        json!("user"),
        json!("legacy"),
        json!([]),
        json!({}),
        json!(["x"]),
        json!([1]),
        json!({"x": "y"}),
        json!({"text": "t"}),
        json!({"source": "s", "content": "c"}),
    ];
    for other in &others {
        change(&|place| *place = other.clone());
    }
    change(&|place| match place {
        Value::String(text) => text.push('x'),
        Value::Array(items) => items.push(Value::Null),
        Value::Object(map) => drop(map.insert("unknown".into(), 1.into())),
        Value::Number(_) | Value::Bool(_) | Value::Null => {}
    });
    change(&|place| match place {
        Value::String(text) => *text = text.to_uppercase(),
        Value::Array(items) => *items = items.iter().cycle().take(items.len() * 101).cloned().collect(),
        Value::Object(map) => {
            if let Some((_, value)) = map.iter().next().map(|(key, value)| (key.clone(), value.clone())) {
                map.extend((0..33).map(|at| (format!("more{at}"), value.clone())));
            }
        }
        Value::Number(_) | Value::Bool(_) | Value::Null => {}
    });
    change(&|place| match place {
        Value::String(text) => *text = "a".repeat(256),
        Value::Array(items) => drop(items.pop()),
        _ => {}
    });
    if let Some((Step::Key(last), parent)) = path.split_last() {
        let mut mutant = manifest.clone();
        if let Value::Object(map) = at(&mut mutant, parent) {
            map.remove(last);
        }
        mutants.push(mutant);
        for name in [format!("{last}s"), last.to_uppercase(), older(last).to_owned()] {
            let mut mutant = manifest.clone();
            if let Value::Object(map) = at(&mut mutant, parent) {
                let value = map.remove(last).unwrap_or_default();
                map.insert(name, value);
            }
            if mutant != *manifest {
                mutants.push(mutant);
            }
        }
        if older(last) != last {
            let mut mutant = manifest.clone();
            if let Value::Object(map) = at(&mut mutant, parent) {
                let value = map.get(last).cloned().unwrap_or_default();
                map.insert(older(last).to_owned(), value);
            }
            mutants.push(mutant);
        }
    }
    mutants
}

/// The older spelling of a key that has one.
pub(crate) fn older(key: &str) -> &str {
    match key {
        "mcpServers" => "mcp_servers",
        "actsAs" => "acts_as",
        "instructions" => "system_prompt",
        other => other,
    }
}
