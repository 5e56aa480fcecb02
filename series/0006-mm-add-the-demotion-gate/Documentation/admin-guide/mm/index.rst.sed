0,/^   \(dem[p-z]\|de[n-z]\|d[f-z]\|[e-z]\)/{
//i\
   demotion_gate
}
