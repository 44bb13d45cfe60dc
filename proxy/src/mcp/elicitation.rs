//! Who may ask the user something, and how.
//!
//! A server asks in a *form*, which it gets the answers of, or by a *url* that the user is to open. What a client
//! declares it can do is cut down to what policy permits; but servers ask undeclared, so what they ask is looked at
//! wherever it can stand: in a request `elicitation/create`, in an error -32042, and in the `inputRequests` of a result
//! that wants more input, or of a task.

use exeat_policy::manifest::ElicitationPolicy;

use super::json::{Edits, Fault, Object, Value};

/// Whether policy permits a question with these parameters. The mode is a form where none is said.
///
/// # Errors
/// As [`Object::get`].
pub(crate) fn permits(policy: ElicitationPolicy, params: Option<Object<'_>>) -> Result<bool, Fault> {
    let mode = match params.map_or(Ok(None), |params| params.get("mode"))? {
        Some(mode) => mode.string().and_then(Result::ok),
        None => Some("form".into()),
    };
    Ok(match policy {
        ElicitationPolicy::UrlAndForm => true,
        ElicitationPolicy::Url => mode.as_deref() == Some("url"),
        ElicitationPolicy::None => false,
    })
}

/// Cuts what a client declares down to what policy permits; nothing is ever added.
///
/// # Errors
/// As [`Object::get`].
pub(crate) fn cut_capabilities(
    policy: ElicitationPolicy,
    capabilities: Object<'_>,
    edits: &mut Edits,
) -> Result<(), Fault> {
    if policy == ElicitationPolicy::UrlAndForm {
        return Ok(());
    }
    let Some(declared) = capabilities.get("elicitation")? else { return Ok(()) };
    let by_url = match declared.object() {
        Some(modes) if policy == ElicitationPolicy::Url => modes.get("url")?.is_some().then_some(modes),
        _ => None,
    };
    match by_url {
        Some(modes) => edits.remove(modes.members(), |member| member.span.clone(), |member| member.key != "url"),
        None => {
            edits.remove(capabilities.members(), |member| member.span.clone(), |member| member.key == "elicitation")
        }
    };
    Ok(())
}

/// Whether `holder` has `inputRequests` of which policy does not permit one.
///
/// # Errors
/// As [`Object::get`].
pub(crate) fn asks_too_much(policy: ElicitationPolicy, holder: Object<'_>) -> Result<bool, Fault> {
    let Some(requests) = holder.get("inputRequests")? else { return Ok(false) };
    let refused = |request: Value<'_>| -> Result<bool, Fault> {
        let Some(request) = request.object() else { return Ok(false) };
        let method = request.string("method")?;
        Ok(method.as_deref() == Some("elicitation/create") && !permits(policy, request.object("params")?)?)
    };
    if let Some(requests) = requests.object() {
        for member in requests.members() {
            if refused(member.value)? {
                return Ok(true);
            }
        }
    }
    for request in requests.items().into_iter().flatten() {
        if refused(request)? {
            return Ok(true);
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::super::json::parse;
    use super::*;

    const ALL: [ElicitationPolicy; 3] =
        [ElicitationPolicy::None, ElicitationPolicy::Url, ElicitationPolicy::UrlAndForm];

    fn object(text: &str) -> Object<'_> {
        parse(text.as_bytes()).unwrap().object().unwrap()
    }

    #[test]
    fn a_question_without_a_mode_is_a_form() {
        for (params, expected) in [
            ("{}", [false, false, true]),
            (r#"{"mode":"form"}"#, [false, false, true]),
            (r#"{"mode":"url","url":"https://a.test/"}"#, [false, true, true]),
            (r#"{"mode":"ur\u006c"}"#, [false, true, true]),
            (r#"{"mode":"URL"}"#, [false, false, true]),
            (r#"{"mode":["url"]}"#, [false, false, true]),
        ] {
            assert_eq!(ALL.map(|policy| permits(policy, Some(object(params))).unwrap()), expected, "{params}");
        }
        assert_eq!(ALL.map(|policy| permits(policy, None).unwrap()), [false, false, true]);
        assert!(permits(ElicitationPolicy::Url, Some(object(r#"{"mode":"url","Mode":"form"}"#))).is_err());
    }

    #[test]
    fn capabilities_are_cut_and_never_added_to() {
        for (declared, none, url) in [
            (r#"{"roots":{}}"#, r#"{"roots":{}}"#, r#"{"roots":{}}"#),
            (r#"{"elicitation":{}}"#, "{}", "{}"),
            (r#"{"elicitation":{"form":{}},"roots":{}}"#, r#"{"roots":{}}"#, r#"{"roots":{}}"#),
            (r#"{"a":1,"elicitation":true}"#, r#"{"a":1}"#, r#"{"a":1}"#),
            (
                r#"{"a":1.0, "elicitation": {"form":{}, "url": {} ,"x":1}, "b":2e0}"#,
                r#"{"a":1.0, "b":2e0}"#,
                r#"{"a":1.0, "elicitation": {"url": {}}, "b":2e0}"#,
            ),
            (r#"{"elicitation":{"url":{}}}"#, "{}", r#"{"elicitation":{"url":{}}}"#),
        ] {
            for (policy, expected) in ALL.into_iter().zip([none, url, declared]) {
                let mut edits = Edits::default();
                cut_capabilities(policy, object(declared), &mut edits).unwrap();
                let cut = String::from_utf8(edits.apply(declared.as_bytes())).unwrap();
                let (cut, expected): (serde_json::Value, serde_json::Value) =
                    (serde_json::from_str(&cut).unwrap(), serde_json::from_str(expected).unwrap());
                assert_eq!(cut, expected, "{policy:?} {declared}");
            }
        }
    }

    #[test]
    fn input_requests_are_looked_through() {
        for (holder, expected) in [
            ("{}", [false, false, false]),
            (r#"{"inputRequests":{"a":{"method":"roots/list"}}}"#, [false, false, false]),
            (r#"{"inputRequests":{"a":{"method":"elicitation/create","params":{}}}}"#, [true, true, false]),
            (
                r#"{"inputRequests":{"a":{"method":"roots/list"},"b":{"method":"elicitation/create","params":{"mode":"url"}}}}"#,
                [true, false, false],
            ),
            (r#"{"inputRequests":[{"method":"elicitation/create"}]}"#, [true, true, false]),
        ] {
            assert_eq!(ALL.map(|policy| asks_too_much(policy, object(holder)).unwrap()), expected, "{holder}");
        }
    }
}
