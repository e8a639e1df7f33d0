//! References to variables in the files of MCP clients.

/// Beginning of the names of the gateway's own variables, which hold its keys.
const OWN: &str = "MCPPROXY_";
/// Variable of the database, which the gateway's own tools read.
const DATABASE: &str = "DATABASE_URL";

/// Text with the values of its references. The type has no `Debug`: the value may be a credential.
#[derive(Clone, Default)]
pub(super) struct ResolvedText {
    /// Text with the values.
    pub(super) value: String,
    /// Variables that were taken from the environment, with their values, in the order of their references.
    pub(super) taken: Vec<(String, String)>,
}

/// Fault of a text with references. No value of a variable is in it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Unresolved(pub(super) String);

/// Replaces the references of a text by values of the environment.
///
/// References are `${NAME}`, `${NAME:-DEFAULT}`, `${env:NAME}`, and `${input:ID}`. The variable of an input is its id in upper
/// case, with `_` for each other character than letters and digits.
///
/// # Errors
/// A variable that is not set, one of the gateway itself, or a reference of another kind.
pub(super) fn resolved(text: &str, env: &dyn Fn(&str) -> Option<String>) -> Result<ResolvedText, Unresolved> {
    let mut out = ResolvedText::default();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("${") {
        out.value.push_str(before);
        let Some((reference, after)) = after.split_once('}') else {
            return Err(Unresolved("has ${ without }".to_owned()));
        };
        add_value(reference, env, &mut out)?;
        rest = after;
    }
    out.value.push_str(rest);
    Ok(out)
}

fn add_value(
    reference: &str,
    env: &dyn Fn(&str) -> Option<String>,
    out: &mut ResolvedText,
) -> Result<(), Unresolved> {
    let (name, default) = match reference.split_once(":-") {
        Some((name, default)) => (name, Some(default)),
        None => (reference, None),
    };
    let variable = match name.split_once(':') {
        None => name.to_owned(),
        Some(("env", name)) => name.to_owned(),
        Some(("input", id)) => variable_of_input(id),
        // the rest may be a credential in the wrong place
        Some((kind, _)) if kind.chars().all(|c| c.is_ascii_alphabetic()) => {
            return Err(Unresolved(format!("${{{kind}:…}} is known to its client only: write the value")));
        }
        Some(_) => return Err(not_a_name()),
    };
    if variable.is_empty() || !variable.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
        return Err(not_a_name());
    }
    if variable.starts_with(OWN) || variable == DATABASE {
        return Err(Unresolved(format!(
            "the environment variable {variable} is the gateway's own and is not sent to servers: use another name"
        )));
    }
    if let Some(found) = env(&variable) {
        out.value.push_str(&found);
        out.taken.push((variable, found));
        return Ok(());
    }
    let asked = if name == variable { String::new() } else { format!(" (it stands for ${{{name}}})") };
    let missing = || Unresolved(format!("the environment variable {variable} is not set, or empty{asked}"));
    out.value.push_str(default.ok_or_else(missing)?);
    Ok(())
}

fn not_a_name() -> Unresolved {
    Unresolved("has a reference ${…} that is not the name of a variable".to_owned())
}

fn variable_of_input(id: &str) -> String {
    id.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Result<String, String> {
        let env = |name: &str| match name {
            "TOKEN" | "GITHUB_TOKEN" | "MCPPROXY_API_KEY" | "DATABASE_URL" => {
                Some(format!("value-of-{name}"))
            }
            _ => None,
        };
        resolved(text, &env).map(|found| found.value).map_err(|fault| fault.0)
    }

    #[test]
    fn variables_of_the_gateway_are_refused() {
        for text in [
            "${MCPPROXY_API_KEY}",
            "${env:MCPPROXY__AUTH__BOOTSTRAP_KEY:-x}",
            "${input:mcpproxy-api-key}",
            "a ${DATABASE_URL}",
        ] {
            let fault = of(text).expect_err(text);
            assert!(fault.contains("is the gateway's own and is not sent to servers"), "{text}: {fault}");
        }
    }

    #[test]
    fn only_what_the_environment_gave_is_taken() {
        let env = |name: &str| (name == "TOKEN").then(|| "x".to_owned());
        let found = resolved("${TOKEN} ${NONE:-else} ${env:TOKEN}", &env).map_err(|fault| fault.0).unwrap();
        assert_eq!(found.value, "x else x");
        assert_eq!(found.taken, vec![("TOKEN".to_owned(), "x".to_owned()); 2]);
    }

    #[test]
    fn references_of_every_client() {
        for (text, value) in [
            ("plain $TOKEN", "plain $TOKEN"),
            ("Bearer ${TOKEN}", "Bearer value-of-TOKEN"),
            ("Bearer ${env:TOKEN}", "Bearer value-of-TOKEN"),
            ("${input:github-token}", "value-of-GITHUB_TOKEN"),
            ("${NONE:-else}${TOKEN:-else}${NONE:-}", "elsevalue-of-TOKEN"),
        ] {
            assert_eq!(of(text).as_deref(), Ok(value), "{text}");
        }
    }

    #[test]
    fn faults_name_the_variable_and_nothing_else() {
        for (text, fault) in [
            ("${NONE}", "the environment variable NONE is not set, or empty"),
            ("${env:NONE}", "the environment variable NONE is not set, or empty (it stands for ${env:NONE})"),
            (
                "${input:no-ne}",
                "the environment variable NO_NE is not set, or empty (it stands for ${input:no-ne})",
            ),
            ("${command:s3cret}", "${command:…} is known to its client only: write the value"),
            ("${s3cret!}", "has a reference ${…} that is not the name of a variable"),
            ("${s3cret!:x}", "has a reference ${…} that is not the name of a variable"),
            ("${}", "has a reference ${…} that is not the name of a variable"),
            ("${TOKEN", "has ${ without }"),
        ] {
            assert_eq!(of(text), Err(fault.to_owned()), "{text}");
        }
    }
}
