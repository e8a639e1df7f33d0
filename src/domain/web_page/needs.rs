//! Words for calls of forms that take secrets which nobody has set.

/// Returns why a form is not sent whose fields `needs` take secrets that its server does not have, and the command that sets
/// them. `has` are the fields whose secrets the server has: a new list replaces all of them.
pub fn missing_secrets(server: &str, needs: &[String], has: &[&str]) -> String {
    let named: Vec<String> = needs.iter().map(|name| format!("'{}'", name.replace('\'', "’"))).collect();
    let takes = match needs.len() {
        1 => "its field {} takes a secret, which no call may supply, and its server has none for it",
        _ => "its fields {} take secrets, which no call may supply, and its server has none for them",
    };
    // a command reads one value from its standard input
    let value = if needs.len() + has.len() == 1 { "-" } else { "VALUE" };
    let fields = has.iter().copied().chain(needs.iter().map(String::as_str));
    let flags: String =
        fields.map(|field| format!(" --field-secret '{}={value}'", in_shell(field))).collect();
    let takes = takes.replacen("{}", &named.join(", "), 1);
    format!("{takes}. An admin can set what is missing: mcpproxy upstream update {server}{flags}")
}

/// Returns the name of a field as a command can have it. A page chooses the name, and must not choose what a shell runs.
fn in_shell(field: &str) -> &str {
    let is_plain = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | ':' | '[' | ']');
    if !field.is_empty() && field.chars().all(is_plain) { field } else { "FIELD" }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn says(needs: &[&str], has: &[&str]) -> String {
        let needs: Vec<String> = needs.iter().map(|name| (*name).to_owned()).collect();
        missing_secrets("shop", &needs, has)
    }

    #[test]
    fn a_field_is_named_with_the_command_that_sets_its_secret() {
        let one = says(&["pw"], &[]);
        assert!(one.contains("its field 'pw' takes a secret"), "{one}");
        assert!(one.ends_with("mcpproxy upstream update shop --field-secret 'pw=-'"), "{one}");
        let more = says(&["pw", "user[pin]"], &["card"]);
        assert!(more.contains("its fields 'pw', 'user[pin]' take secrets"), "{more}");
        let flags = "--field-secret 'card=VALUE' --field-secret 'pw=VALUE' --field-secret 'user[pin]=VALUE'";
        assert!(more.ends_with(flags), "a new list replaces the old one: {more}");
    }

    #[test]
    fn a_page_writes_no_command() {
        for name in ["a'; reboot #", "$(reboot)", "a b", "`reboot`", "a\nb", ""] {
            let says = says(&[name], &[]);
            assert!(says.ends_with("--field-secret 'FIELD=-'"), "{says}");
        }
    }
}
