//! What gungraun printed.

use std::collections::BTreeMap;

use serde_json::Value;

/// Instructions by name of the benchmark: its group and its function.
pub type Counts = BTreeMap<String, u64>;

pub fn read(output: &str) -> Result<Counts, String> {
    let mut counts = Counts::new();
    for line in output.lines().filter(|line| line.starts_with('{')) {
        let (name, count) =
            benchmark(line).ok_or_else(|| format!("gungraun printed what nobody reads: {line}"))?;
        if count == 0 {
            return Err(format!("{name} counted nothing: is this x86-64, and valgrind's callgrind?"));
        }
        if counts.insert(name.clone(), count).is_some() {
            return Err(format!("{name} is the name of two benchmarks"));
        }
    }
    match counts.is_empty() {
        true => Err("gungraun printed no benchmark".into()),
        false => Ok(counts),
    }
}

fn benchmark(line: &str) -> Option<(String, u64)> {
    let summary: Value = serde_json::from_str(line).ok()?;
    let group = summary["group"].as_str()?;
    let name =
        format!("{}/{}", group.strip_suffix("_group").unwrap_or(group), summary["function_name"].as_str()?);
    let count = summary["profiles"][0]["data"]["total"]["metrics"]["Ir"]["values"]["new"].as_u64()?;
    Some((name, count))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(function: &str, values: &str) -> String {
        format!(
            r#"{{"group":"codec_group","function_name":"{function}","profiles":[{{"tool":"Callgrind","data":{{"total":{{"metrics":{{"Ir":{{"values":{values}}}}}}}}}}}]}}"#
        )
    }

    #[test]
    fn a_benchmark_is_named_after_its_group_and_function() {
        let output = format!("{}\n{}\n", line("a", r#"{"new":7}"#), line("b", r#"{"new":9,"old":8}"#));
        let counts = read(&output).unwrap();
        assert_eq!(counts, Counts::from([("codec/a".into(), 7), ("codec/b".into(), 9)]));
    }

    #[test]
    fn what_does_not_count_is_an_error() {
        assert!(read("").unwrap_err().contains("no benchmark"));
        assert!(read(&line("a", r#"{"new":0}"#)).unwrap_err().contains("codec/a counted nothing"));
        assert!(read(&line("a", r#"{"old":7}"#)).unwrap_err().contains("nobody reads"));
        let twice = format!("{0}\n{0}", line("a", r#"{"new":7}"#));
        assert!(read(&twice).unwrap_err().contains("two benchmarks"));
    }
}
