# Makes HTML of what Sweave wrote: of sections, paragraphs, code and output, which is all that the vignette has.
files <- commandArgs(trailingOnly = TRUE)
lines <- readLines(files[1])
title <- sub("^\\\\title\\{(.*)\\}$", "\\1", grep("^\\\\title", lines, value = TRUE))
escape <- function(text) gsub(">", "&gt;", gsub("<", "&lt;", gsub("&", "&amp;", text)))
lines <- escape(lines[(grep("^\\\\maketitle", lines) + 1):(grep("^\\\\end\\{document\\}", lines) - 1)])

code <- "Sinput|Soutput|verbatim"
lines <- lines[!grepl("^\\\\(begin|end)\\{Schunk\\}$", lines)]
inside <- cumsum(grepl(sprintf("^\\\\begin\\{(%s)\\}$", code), lines)) > cumsum(grepl(sprintf("^\\\\end\\{(%s)\\}$", code), lines))
lines <- sub(sprintf("^\\\\begin\\{(%s)\\}$", code), "<pre class=\"\\1\">", lines)
lines <- sub(sprintf("^\\\\end\\{(%s)\\}$", code), "</pre>", lines)
lines[!inside] <- sub("^\\\\section\\{(.*)\\}$", "<h2>\\1</h2>", lines[!inside])
lines[!inside & lines == ""] <- "<p>"

style <- "body { max-width: 46em; margin: 2em auto; padding: 0 1em; font: 16px/1.5 sans-serif; }
pre { padding: 0.6em; overflow-x: auto; border-left: 3px solid #ccc; }
pre.Sinput { background: #f3f3f3; border: 0; }"
writeLines(c(
  "<!DOCTYPE html>", "<html lang=\"en\"><head><meta charset=\"utf-8\">", paste0("<title>", title, "</title>"),
  "<style>", style, "</style></head><body>", paste0("<h1>", title, "</h1>"), lines, "</body></html>"
), files[2])
