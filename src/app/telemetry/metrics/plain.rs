//! The older text format, for scrapers that do not ask for OpenMetrics. It differs in the names of counters, in units
//! and in the end marker.

/// Converts a page. In the older format a counter's family has the name of its samples.
pub(super) fn from_openmetrics(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            let name = help.split(' ').next().unwrap_or_default();
            let counts = lines.peek().is_some_and(|next| *next == format!("# TYPE {name} counter"));
            let said = help.get(name.len()..).unwrap_or_default();
            let suffix = if counts { "_total" } else { "" };
            out.push_str(&format!("# HELP {name}{suffix}{said}\n"));
        } else if let Some(name) = line.strip_prefix("# TYPE ").and_then(|rest| rest.strip_suffix(" counter"))
        {
            out.push_str(&format!("# TYPE {name}_total counter\n"));
        } else if !line.starts_with("# UNIT ") && line != "# EOF" {
            out.push_str(line);
            out.push('\n');
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::from_openmetrics;

    #[test]
    fn counters_are_called_like_their_samples() {
        let open = "# HELP a How many\n# TYPE a counter\na_total{b=\"# EOF\"} 1\n\
                    # HELP s_seconds How long\n# TYPE s_seconds gauge\n# UNIT s_seconds seconds\ns_seconds 2\n# EOF\n";
        let plain = "# HELP a_total How many\n# TYPE a_total counter\na_total{b=\"# EOF\"} 1\n\
                     # HELP s_seconds How long\n# TYPE s_seconds gauge\ns_seconds 2\n";
        assert_eq!(from_openmetrics(open), plain);
    }
}
